// SPDX-License-Identifier: Apache-2.0
#include "comm/reduce_add.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <string>

#include "comm/device_list.h"
#include "comm/internal/checks.h"
#include "comm/internal/sum.h"

namespace lockstep::comm {
namespace {

void check_inputs(const char* op, at::TensorList inputs) {
  TORCH_CHECK(!inputs.empty(), "[", op, "] expected at least one input, got an empty list");
  for (size_t i = 0; i < inputs.size(); ++i) {
    internal::check_dense_or_sparse(op, "input", inputs[i], static_cast<int64_t>(i));
    internal::check_summand(op, inputs[0], inputs[i], [i] { return "index " + std::to_string(i); });
  }
}

}  // namespace

at::Tensor reduce_add(at::TensorList inputs, c10::Device destination,
                      const ReduceAddOptions& options) {
  constexpr const char* kOp = "reduce_add";
  const c10::Device home = normalize_device(kOp, destination);
  check_inputs(kOp, inputs);
  if (inputs.size() == 1 && inputs[0].device() == home) {
    return inputs[0];
  }
  DeviceCollectives& collectives = internal::choose_collectives(options.collectives, home, inputs);
  return internal::sum_fresh(inputs, home, collectives);
}

at::Tensor reduce_add_out(at::TensorList inputs, const at::Tensor& output,
                          const ReduceAddOptions& options) {
  constexpr const char* kOp = "reduce_add_out";
  check_inputs(kOp, inputs);
  internal::check_dense(kOp, "output", output, 0);
  TORCH_CHECK(output.sizes() == inputs[0].sizes(), "[", kOp, "] expected an output of size ",
              inputs[0].sizes(), ", got ", output.sizes());
  TORCH_CHECK(output.scalar_type() == inputs[0].scalar_type(), "[", kOp,
              "] expected an output of dtype ", inputs[0].scalar_type(), ", got ",
              output.scalar_type());
  bool any_sparse = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].is_sparse()) {
      any_sparse = true;
      continue;
    }
    internal::check_writable(kOp, output, inputs[i], static_cast<int64_t>(i));
    TORCH_CHECK(!internal::same_memory(output, inputs[i]), "[", kOp,
                "] expected an output apart from the inputs, got the input, at index ", i);
  }
  const at::NoGradGuard no_grad;
  DeviceCollectives& collectives =
      internal::choose_collectives(options.collectives, output.device(), inputs);
  if (any_sparse) {
    const at::Tensor sum = internal::sum_fresh(inputs, output.device(), collectives);
    at::Tensor(output).copy_(sum.is_sparse() ? sum.to_dense() : sum);
  } else if (inputs.size() == 1) {
    collectives.copy(inputs[0], output);
  } else {
    collectives.reduce_add(inputs, output);
  }
  return output;
}

}  // namespace lockstep::comm
