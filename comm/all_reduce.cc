// SPDX-License-Identifier: Apache-2.0
#include "comm/all_reduce.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>

#include "comm/internal/checks.h"
#include "comm/internal/per_device_checks.h"

namespace lockstep::comm {
namespace {

void check_outputs(const char* op, at::TensorList inputs, at::TensorList outputs) {
  TORCH_CHECK(outputs.size() == inputs.size(), "[", op, "] expected ", inputs.size(),
              " outputs, one per input, got ", outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const int64_t index = static_cast<int64_t>(i);
    internal::check_dense(op, "output", outputs[i], index);
    TORCH_CHECK(outputs[i].sizes() == inputs[i].sizes(), "[", op, "] expected an output of size ",
                inputs[i].sizes(), ", got ", outputs[i].sizes(), ", at index ", i);
    TORCH_CHECK(outputs[i].scalar_type() == inputs[i].scalar_type(), "[", op,
                "] expected an output of dtype ", inputs[i].scalar_type(), ", got ",
                outputs[i].scalar_type(), ", at index ", i);
    TORCH_CHECK(outputs[i].device() == inputs[i].device(), "[", op, "] expected an output on ",
                inputs[i].device(), ", got ", outputs[i].device(), ", at index ", i);
    for (size_t j = 0; j < inputs.size(); ++j) {
      internal::check_writable(op, outputs[i], inputs[j], index);
      TORCH_CHECK(i == j || !internal::same_memory(outputs[i], inputs[j]), "[", op,
                  "] expected an output apart from the inputs of other positions, got input ", j,
                  ", at index ", i);
      if (j < i) {
        internal::check_writable(op, outputs[i], outputs[j], index);
        TORCH_CHECK(!internal::same_memory(outputs[i], outputs[j]), "[", op,
                    "] expected outputs apart from each other, got output ", j, ", at index ", i);
      }
    }
  }
}

}  // namespace

std::vector<at::Tensor> all_reduce(at::TensorList inputs, const AllReduceOptions& options) {
  constexpr const char* kOp = "all_reduce";
  internal::check_inputs_alike(kOp, inputs);
  internal::check_reduction(kOp, options.reduction, inputs[0].scalar_type());
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> outputs;
  for (const at::Tensor& input : inputs) {
    outputs.push_back(at::empty_like(input, at::MemoryFormat::Preserve));
  }
  internal::choose_collectives(options.collectives, inputs[0].device(), inputs)
      .all_reduce(inputs, outputs, options.reduction);
  return outputs;
}

std::vector<at::Tensor> all_reduce_out(at::TensorList inputs, at::TensorList outputs,
                                       const AllReduceOptions& options) {
  constexpr const char* kOp = "all_reduce_out";
  internal::check_inputs_alike(kOp, inputs);
  internal::check_reduction(kOp, options.reduction, inputs[0].scalar_type());
  check_outputs(kOp, inputs, outputs);
  const at::NoGradGuard no_grad;
  internal::choose_collectives(options.collectives, inputs[0].device(), inputs)
      .all_reduce(inputs, outputs, options.reduction);
  return outputs.vec();
}

}  // namespace lockstep::comm
