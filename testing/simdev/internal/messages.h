// SPDX-License-Identifier: Apache-2.0
// messages.h: the texts of faults. Call them without holding a lock.
#pragma once

#include <cstddef>
#include <string>

#include "testing/simdev/internal/access_log.h"

namespace lockstep::simdev::internal {

// `next` is not ordered after `before`; both of a block of `block_bytes` of the device's memory.
std::string race_message(int device, size_t block_bytes, const Access& before, const Access& next);
// Memory that `use` may still use was handed out on `stream`.
std::string reuse_message(int device, size_t block_bytes, int stream, const Access& use);
std::string written_after_free_message(int device, size_t block_bytes, size_t byte,
                                       const Access* last);
std::string used_after_free_message(int device, size_t block_bytes, const Access& use,
                                    const Access* last);
std::string pinned_source_message(const char* op, int stream, const TensorNote& source);

}  // namespace lockstep::simdev::internal
