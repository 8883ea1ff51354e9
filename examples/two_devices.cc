// SPDX-License-Identifier: Apache-2.0
// two_devices: the smallest whole program: one network, two replicas on the CPU, a loss that falls.
// [readme: two_devices]
#include <torch/torch.h>

#include <iostream>

#include "lockstep.h"

int main() {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(1, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));
  lockstep::parallel::DataParallel parallel(net, {torch::kCPU, torch::kCPU});
  torch::optim::Adam optimizer(net->parameters(), 0.01);

  const auto x = torch::linspace(-3, 3, 256).unsqueeze(1);
  for (int step = 0; step <= 400; ++step) {
    optimizer.zero_grad();
    const auto loss = torch::mse_loss(parallel.forward(x), x.sin());  // 128 rows on each replica
    loss.backward();                                                  // gradients land in net
    optimizer.step();
    if (step % 100 == 0) std::cout << "step " << step << "  loss " << loss.item<float>() << '\n';
  }
}
// [end]
