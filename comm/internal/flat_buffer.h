// SPDX-License-Identifier: Apache-2.0
// flat_buffer: many dense tensors as one 1-D tensor, and back. Tensors without gaps are stored in
// the order of their memory, so that their strides survive; the others in row-major order.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "comm/coalesce.h"

namespace lockstep::comm::internal {

// Returns the tensors that `group` names, which may be any list as long as the grouped one.
std::vector<at::Tensor> members_of(const CoalesceGroup& group, at::TensorList tensors);

// Returns a fresh 1-D tensor that holds tensors[0], tensors[1], ... one after another, each in the
// memory order of like[i], which has the same sizes. All of one dtype and on one device; not empty.
at::Tensor flatten(at::TensorList tensors, at::TensorList like);

// Returns the parts of `flat` with the sizes of like[i], and its strides where it has no gaps. Each
// is a plain tensor on the memory of `flat`, with a version counter of its own.
std::vector<at::Tensor> unflatten(const at::Tensor& flat, at::TensorList like);

}  // namespace lockstep::comm::internal
