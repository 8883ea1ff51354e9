// SPDX-License-Identifier: Apache-2.0
#include "replicate/test_modules.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>

#include <mutex>

#include "replicate/module_tensors.h"

namespace lockstep::replicate {

std::atomic<int64_t> AffineImpl::num_resets{0};

void AffineImpl::reset() {
  ++num_resets;
  weight = register_parameter("weight", at::randn({width}, at::kDouble));
  shift = register_buffer("shift", at::randn({width}, at::kDouble));
}

at::Tensor AffineImpl::forward(const at::Tensor& x) const { return x * weight + shift; }

void AffineImpl::replace_weight(const at::Tensor& tensor) {
  weight = tensor;
  parameters_["weight"] = weight;
}

void TiedImpl::reset() {
  a = register_parameter("a", at::ones({2}, at::kDouble));
  b = register_parameter("b", a);
  left = register_module("left", std::make_shared<AffineImpl>(2));
  right = register_module("right", left);
}

at::Tensor TiedImpl::forward(const at::Tensor& x) const {
  return right->forward(left->forward(x * a + x * b));
}

PlainImpl::PlainImpl() { weight = register_parameter("weight", at::ones({2}, at::kDouble)); }

std::vector<at::Tensor> take_gradients(torch::nn::Module& module) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : unique_parameters(module)) {
    gradients.push_back(parameter.grad());
    parameter.mutable_grad() = at::Tensor();
  }
  return gradients;
}

at::Tensor generator_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

}  // namespace lockstep::replicate
