// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/nccl_dtype.h"

namespace lockstep::comm::nccl {

Elements as_bytes(const at::Tensor& tensor) {
  return {tensor.nbytes(), DataType::kUint8, RedOp::kSum};
}

std::optional<Elements> as_summands(const at::Tensor& tensor) {
  const size_t count = static_cast<size_t>(tensor.numel());
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return Elements{count, DataType::kFloat32, RedOp::kSum};
    case at::kDouble:
      return Elements{count, DataType::kFloat64, RedOp::kSum};
    case at::kHalf:
      return Elements{count, DataType::kFloat16, RedOp::kSum};
    case at::kBFloat16:
      return Elements{count, DataType::kBfloat16, RedOp::kSum};
    case at::kComplexFloat:
      return Elements{2 * count, DataType::kFloat32, RedOp::kSum};
    case at::kComplexDouble:
      return Elements{2 * count, DataType::kFloat64, RedOp::kSum};
    case at::kChar:
      return Elements{count, DataType::kInt8, RedOp::kSum};
    case at::kByte:
      return Elements{count, DataType::kUint8, RedOp::kSum};
    case at::kInt:
      return Elements{count, DataType::kInt32, RedOp::kSum};
    case at::kLong:
      return Elements{count, DataType::kInt64, RedOp::kSum};
    case at::kBool:
      return Elements{count, DataType::kUint8, RedOp::kMax};
    default:
      return std::nullopt;
  }
}

}  // namespace lockstep::comm::nccl
