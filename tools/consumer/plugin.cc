// SPDX-License-Identifier: Apache-2.0
// A shared object that trains one step and registers a type of its own with LibTorch.
#include <ATen/ops/ones.h>
#include <torch/custom_class.h>
#include <torch/nn/modules/linear.h>

#include <vector>

#include "parallel/data_parallel.h"

#define STRING_OF(name) #name
#define NAME_OF(name) STRING_OF(name)

namespace {

struct Trainer : torch::CustomClassHolder {};
const auto registered = torch::class_<Trainer>("consumer", NAME_OF(TRAIN)).def(torch::init<>());

}  // namespace

extern "C" int TRAIN() {
  torch::nn::Linear net(2, 1);
  const std::vector<c10::Device> devices = {c10::kCPU, c10::kCPU};
  lockstep::parallel::data_parallel(net, at::ones({4, 2}), devices).sum().backward();
  return net->weight.grad().sum().item<float>() == 8 ? 0 : 1;
}
