// SPDX-License-Identifier: Apache-2.0
// sum: fresh sums for reduce_add and reduce_add_coalesced, and the checks of what goes in.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include "comm/device_collectives.h"

namespace lockstep::comm::internal {

// Returns the sum as a fresh tensor on `destination`: sparse if all inputs are, dense otherwise.
at::Tensor sum_fresh(at::TensorList inputs, c10::Device destination,
                     DeviceCollectives& collectives);

// Throws, naming position and both values, unless sizes and dtype of `input` are those of `first`,
// and the sparse dims too where both are sparse. `place` continues "at ", for example "row 1, index
// 4".
template <class Place>
void check_summand(const char* op, const at::Tensor& first, const at::Tensor& input,
                   const Place& place) {
  TORCH_CHECK(input.sizes() == first.sizes(), "[", op, "] expected size ", first.sizes(), ", got ",
              input.sizes(), ", at ", place());
  TORCH_CHECK(input.scalar_type() == first.scalar_type(), "[", op, "] expected dtype ",
              first.scalar_type(), ", got ", input.scalar_type(), ", at ", place());
  TORCH_CHECK(!input.is_sparse() || !first.is_sparse() || input.sparse_dim() == first.sparse_dim(),
              "[", op, "] expected ", first.sparse_dim(), " sparse dims, got ", input.sparse_dim(),
              ", at ", place());
}

}  // namespace lockstep::comm::internal
