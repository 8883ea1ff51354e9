// SPDX-License-Identifier: Apache-2.0
// nccl_dtype: how a tensor's elements go over NCCL.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>

#include "comm/nccl/nccl_types.h"

namespace lockstep::comm::nccl {

// A tensor without gaps as NCCL counts it.
struct Elements {
  size_t count;
  DataType dtype;
  RedOp op;
};

// For what only moves bytes: any dtype.
Elements as_bytes(const at::Tensor& tensor);

// For a sum: complex numbers are two reals each, and bool is the maximum of bytes, which is a
// logical or. None for dtypes that NCCL cannot add.
std::optional<Elements> as_summands(const at::Tensor& tensor);

}  // namespace lockstep::comm::nccl
