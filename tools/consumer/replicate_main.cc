// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/ones.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>

#include "replicate/replicate.h"

int main() {
  torch::nn::Linear net(2, 1);
  auto replicas = lockstep::replicate::replicate(net, {c10::kCPU, c10::kCPU});
  replicas[1]->forward(at::ones({1, 2})).sum().backward();
  std::printf("%zu replicas\n", replicas.size());
  return replicas.size() == 2 && net->weight.grad().sum().item<float>() == 2 ? 0 : 1;
}
