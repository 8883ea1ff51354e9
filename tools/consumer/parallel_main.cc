// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/ones.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>
#include <vector>

#include "parallel/data_parallel.h"

int main() {
  torch::nn::Linear net(2, 1);
  const std::vector<c10::Device> devices = {c10::kCPU, c10::kCPU};
  const at::Tensor output = lockstep::parallel::data_parallel(net, at::ones({4, 2}), devices);
  output.sum().backward();
  std::printf("%d rows\n", static_cast<int>(output.size(0)));
  return output.size(0) == 4 && net->weight.grad().sum().item<float>() == 8 ? 0 : 1;
}
