// SPDX-License-Identifier: Apache-2.0
// pinned.h: host memory that non-blocking copies may use: ordinary memory that is known as pinned.
#pragma once

#include <c10/core/Allocator.h>

namespace lockstep::simdev::internal {

c10::Allocator* pinned_allocator();

}  // namespace lockstep::simdev::internal
