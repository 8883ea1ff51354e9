// SPDX-License-Identifier: Apache-2.0
// pack_add: comm/internal/pack_add_kernel.h on CUDA devices.
#pragma once

#include "comm/internal/pack_add_kernel.h"

namespace lockstep::comm::cuda {

// Starts the kernel on `stream`, a cudaStream_t of the current device. Returns null, or CUDA's
// words for what went wrong.
const char* launch_pack_add(const internal::PackAddTable& table, internal::Summand kind,
                            void* stream);

}  // namespace lockstep::comm::cuda
