// SPDX-License-Identifier: Apache-2.0
#include "comm/reduce_scatter.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "comm/internal/checks.h"
#include "comm/internal/per_device_checks.h"

namespace lockstep::comm {

std::vector<at::Tensor> reduce_scatter(at::TensorList inputs, const ReduceScatterOptions& options) {
  constexpr const char* kOp = "reduce_scatter";
  internal::check_inputs_alike(kOp, inputs);
  internal::check_reduction(kOp, options.reduction, inputs[0].scalar_type());
  const int64_t parts = static_cast<int64_t>(inputs.size());
  TORCH_CHECK(inputs[0].dim() > 0 && inputs[0].size(0) % parts == 0, "[", kOp,
              "] expected a dim 0 that is a multiple of ", parts,
              ", the number of inputs, got size ", inputs[0].sizes());
  const at::NoGradGuard no_grad;
  std::vector<int64_t> sizes = inputs[0].sizes().vec();
  sizes[0] /= parts;
  std::vector<at::Tensor> plain;
  std::vector<at::Tensor> outputs;
  for (const at::Tensor& input : inputs) {
    plain.push_back(input.contiguous());
    outputs.push_back(at::empty(sizes, input.options()));
  }
  internal::choose_collectives(options.collectives, inputs[0].device(), inputs)
      .reduce_scatter(plain, outputs, options.reduction);
  return outputs;
}

}  // namespace lockstep::comm
