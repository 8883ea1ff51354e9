// SPDX-License-Identifier: Apache-2.0
// poison.h: freed memory is filled with 0xFF, which is NaN as floats, so that reading it shows and
// writing it can be found. Of large blocks only both ends: the rest would cost more than it finds.
#pragma once

#include <cstddef>

namespace lockstep::simdev::internal {

void poison(char* memory, size_t bytes);
// The first byte that is not as poison() left it, or `bytes`.
size_t first_change(const char* memory, size_t bytes);

}  // namespace lockstep::simdev::internal
