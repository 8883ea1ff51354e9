// SPDX-License-Identifier: Apache-2.0
#include "comm/all_gather.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "comm/internal/checks.h"
#include "comm/internal/per_device_checks.h"

namespace lockstep::comm {

std::vector<at::Tensor> all_gather(at::TensorList inputs, const AllGatherOptions& options) {
  constexpr const char* kOp = "all_gather";
  internal::check_inputs_alike(kOp, inputs);
  TORCH_CHECK(inputs[0].dim() > 0, "[", kOp,
              "] expected inputs with at least one dimension, got a 0-d tensor, at index 0");
  const at::NoGradGuard no_grad;
  std::vector<int64_t> sizes = inputs[0].sizes().vec();
  sizes[0] *= static_cast<int64_t>(inputs.size());
  std::vector<at::Tensor> plain;
  std::vector<at::Tensor> outputs;
  for (const at::Tensor& input : inputs) {
    plain.push_back(input.contiguous());
    outputs.push_back(at::empty(sizes, input.options()));
  }
  internal::choose_collectives(options.collectives, inputs[0].device(), inputs)
      .all_gather(plain, outputs);
  return outputs;
}

}  // namespace lockstep::comm
