// SPDX-License-Identifier: Apache-2.0
// A minimal training program; with WITH_LOCKSTEP on two replicas of its network. The difference in
// what the two forms cost to compile and link is measured.
#include <torch/torch.h>

#include <cstdio>
#include <vector>

#ifdef WITH_LOCKSTEP
#include "parallel/data_parallel.h"
#endif

int main() {
  torch::nn::Linear net(4, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const torch::Tensor input = torch::randn({8, 4});
  const torch::Tensor target = input.sum(1, /*keepdim=*/true);
  double loss_value = 0;
  for (int step = 0; step < 100; ++step) {
    optimizer.zero_grad();
#ifdef WITH_LOCKSTEP
    const std::vector<torch::Device> devices{torch::kCPU, torch::kCPU};
    const torch::Tensor output = lockstep::parallel::data_parallel(net, input, devices);
#else
    const torch::Tensor output = net->forward(input);
#endif
    torch::Tensor loss = torch::mse_loss(output, target);
    loss.backward();
    optimizer.step();
    loss_value = loss.item<double>();
  }
  std::printf("loss %.3g\n", loss_value);
  return loss_value < 0.1 ? 0 : 1;
}
