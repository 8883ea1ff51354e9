// SPDX-License-Identifier: Apache-2.0
#include "comm/internal/per_device_checks.h"

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include "comm/internal/checks.h"

namespace lockstep::comm::internal {

void check_inputs_alike(const char* op, at::TensorList inputs) {
  TORCH_CHECK(!inputs.empty(), "[", op, "] expected at least one input, got an empty list");
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_dense(op, "input", inputs[i], static_cast<int64_t>(i));
    TORCH_CHECK(inputs[i].sizes() == inputs[0].sizes(), "[", op, "] expected size ",
                inputs[0].sizes(), ", got ", inputs[i].sizes(), ", at index ", i);
    TORCH_CHECK(inputs[i].scalar_type() == inputs[0].scalar_type(), "[", op, "] expected dtype ",
                inputs[0].scalar_type(), ", got ", inputs[i].scalar_type(), ", at index ", i);
  }
}

void check_reduction(const char* op, Reduction reduction, at::ScalarType dtype) {
  TORCH_CHECK(
      reduction == Reduction::kSum || c10::isFloatingType(dtype) || c10::isComplexType(dtype), "[",
      op, "] expected a floating-point or complex dtype for a mean, got ", dtype);
}

}  // namespace lockstep::comm::internal
