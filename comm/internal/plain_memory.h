// SPDX-License-Identifier: Apache-2.0
// plain_memory: whether a tensor can be moved as bytes.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::comm::internal {

// Whether the bytes from the first element to the last are the tensor as it reads: dense, without
// gaps, and no conjugation or sign left to be applied.
inline bool is_plain_memory(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.is_non_overlapping_and_dense() &&
         !tensor.is_conj() && !tensor.is_neg();
}

}  // namespace lockstep::comm::internal
