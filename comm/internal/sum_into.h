// SPDX-License-Identifier: Apache-2.0
// sum_into: the arithmetic of every sum on one device.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::comm::internal {

// Writes inputs[0] + inputs[1] + ... into `destination`, in list order, each partial sum rounded to
// the dtype. All dense, of equal sizes and dtype; `destination` overlaps no input.
void sum_into(at::TensorList inputs, const at::Tensor& destination);

}  // namespace lockstep::comm::internal
