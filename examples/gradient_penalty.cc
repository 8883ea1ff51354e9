// SPDX-License-Identifier: Apache-2.0
// gradient_penalty: a Wasserstein GAN learns eight clusters in the plane. A penalty holds the slope
// of its critic near one; that is a loss made of gradients, and they come through the replicas.
#include <torch/torch.h>

#include <cmath>
#include <iomanip>
#include <iostream>
#include <tuple>

#include "lockstep.h"

namespace {

using lockstep::parallel::DataParallel;
using torch::nn::Linear;
using torch::nn::ReLU;
using torch::nn::Sequential;

constexpr int64_t kBatch = 256;
constexpr int64_t kNoise = 2;
constexpr int64_t kWidth = 64;
constexpr int kSteps = 500;
constexpr int kCriticSteps = 3;   // for each step of the generator
constexpr double kPenalty = 0.1;  // the weight of the gradient penalty
constexpr int kClusters = 8;
constexpr double kSpread = 0.05;

// The centres of the clusters, on a circle of radius one: [8, 2].
torch::Tensor centres() {
  const auto angle = torch::arange(kClusters) * (2 * M_PI / kClusters);
  return torch::stack({angle.cos(), angle.sin()}, 1);
}

torch::Tensor real_points() {
  return centres().index_select(0, torch::randint(kClusters, {kBatch})) +
         kSpread * torch::randn({kBatch, 2});
}

Sequential network(int64_t inputs, int64_t outputs) {
  return Sequential(Linear(inputs, kWidth), ReLU(), Linear(kWidth, kWidth), ReLU(),
                    Linear(kWidth, outputs));
}

// How far the critic's slope is from one, at random places between real and made points.
torch::Tensor gradient_penalty(DataParallel<torch::nn::SequentialImpl>& critic,
                               const torch::Tensor& real, const torch::Tensor& made) {
  const auto share = torch::rand({kBatch, 1});
  const auto places = torch::lerp(real, made, share).requires_grad_();
  const auto slopes = torch::autograd::grad({critic.forward(places).sum()}, {places}, {},
                                            /*retain_graph=*/true, /*create_graph=*/true)[0];
  return (slopes.norm(2, 1) - 1).square().mean();
}

// Mean distance of points to the nearest cluster, and the clusters that get a fair share of them.
std::tuple<double, int> measure(const torch::Tensor& points) {
  const auto [distance, nearest] = torch::cdist(points, centres()).min(1);
  const auto counts = torch::bincount(nearest, {}, kClusters);
  return {distance.mean().item<double>(),
          (counts > points.size(0) / (2 * kClusters)).sum().item<int>()};
}

}  // namespace

int main() {
  torch::manual_seed(1);
  Sequential generator_net = network(kNoise, 2), critic_net = network(2, 1);
  DataParallel generator(generator_net, {torch::kCPU, torch::kCPU});
  DataParallel critic(critic_net, {torch::kCPU, torch::kCPU});
  const auto settings = torch::optim::AdamOptions(3e-3).betas({0.0, 0.9});
  torch::optim::Adam generator_optimizer(generator.parameters(), settings);
  torch::optim::Adam critic_optimizer(critic.parameters(), settings);
  const auto make_points = [&] { return generator.forward(torch::randn({kBatch, kNoise})); };

  std::cout << std::fixed << std::setprecision(3);
  double first_distance = 0, distance = 0;
  int reached = 0;
  for (int step = 0; step <= kSteps; ++step) {
    double wasserstein = 0;
    for (int i = 0; i < kCriticSteps; ++i) {
      critic_optimizer.zero_grad();
      const auto real = real_points();
      const auto made = make_points().detach();
      const auto gap = critic.forward(real).mean() - critic.forward(made).mean();
      (kPenalty * gradient_penalty(critic, real, made) - gap).backward();
      critic_optimizer.step();
      wasserstein = gap.item<double>();
    }
    if (step % 100 == 0) {
      torch::NoGradGuard no_grad;
      std::tie(distance, reached) = measure(generator_net->forward(torch::randn({4096, kNoise})));
      if (step == 0) first_distance = distance;
      std::cout << "step " << std::setw(4) << step << "  wasserstein " << wasserstein
                << "  distance " << distance << "  clusters " << reached << std::endl;
    }
    generator_optimizer.zero_grad();
    (-critic.forward(make_points()).mean()).backward();  // through both networks
    generator_optimizer.step();
  }
  std::cout << "distance to the nearest cluster: " << first_distance << " before, " << distance
            << " after; " << reached << " of " << kClusters << " clusters reached\n";
}
