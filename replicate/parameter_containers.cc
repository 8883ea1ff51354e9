// SPDX-License-Identifier: Apache-2.0
#include "replicate/parameter_containers.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

namespace lockstep::replicate {
namespace {

template <class Container>
std::shared_ptr<torch::nn::Module> clone_entries(const Container& original,
                                                 const std::optional<c10::Device>& device) {
  const at::NoGradGuard no_grad;
  auto copy = std::make_shared<Container>();
  copy->train(original.is_training());
  for (const auto& entry : original) {
    const at::Tensor& tensor = entry.value();
    at::Tensor value;
    if (tensor.defined()) {
      value = tensor.detach().to(tensor.options().device(device.value_or(tensor.device())),
                                 /*non_blocking=*/false, /*copy=*/true);
    }
    copy->register_parameter(entry.key(), value, tensor.requires_grad());
  }
  return copy;
}

}  // namespace

std::shared_ptr<torch::nn::Module> ParameterListImpl::clone(
    const std::optional<c10::Device>& device) const {
  return clone_entries(*this, device);
}

std::shared_ptr<torch::nn::Module> ParameterDictImpl::clone(
    const std::optional<c10::Device>& device) const {
  return clone_entries(*this, device);
}

}  // namespace lockstep::replicate
