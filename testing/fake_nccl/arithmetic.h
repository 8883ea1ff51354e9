// SPDX-License-Identifier: Apache-2.0
// arithmetic.h: what a reduction computes, one element after the other, rounded to the dtype after
// each step.
#pragma once

#include <cstddef>
#include <vector>

#include "testing/fake_nccl/types.h"

namespace lockstep::fake_nccl::internal {

// One rank's values, and the scalar they are multiplied by first (null: none).
struct Term {
  const void* values;
  const void* scalar;
};

// Writes the `count` elements from `begin` on of terms[0] op terms[1] op ... to out, from its
// beginning. Sums of integers wrap; their average is truncated towards zero.
void fold(const std::vector<Term>& terms, DataType dtype, RedOp op, size_t begin, size_t count,
          void* out);

}  // namespace lockstep::fake_nccl::internal
