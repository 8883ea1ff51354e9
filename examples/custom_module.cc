// SPDX-License-Identifier: Apache-2.0
// custom_module: a module that says itself how it is copied. It has no clone(), a tensor in no
// registry, and a layer under two names. It learns how a damped spring moves from the equation of
// motion alone, u'' + 2 d u' + w^2 u = 0, whose derivatives come through the replicas.
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>

#include "lockstep.h"

namespace {

constexpr int64_t kWidth = 64;
constexpr int64_t kPoints = 128;
constexpr int kSteps = 500;
constexpr double kDamping = 0.3;    // d
constexpr double kFrequency = 3.0;  // w
constexpr double kEnd = 4.0;        // time runs from 0 to here

torch::Tensor derivative(const torch::Tensor& of, const torch::Tensor& by) {
  return torch::autograd::grad({of.sum()}, {by}, {}, /*retain_graph=*/true,
                               /*create_graph=*/true)[0];
}

class Spring : public torch::nn::Module, public lockstep::replicate::Replicatable {
 public:
  explicit Spring(int64_t width)
      : width_(width),
        frequencies_(torch::randn({1, width / 2}) * kFrequency),
        hidden_(register_module("first", torch::nn::Linear(width, width))),
        again_(register_module("second", hidden_)),  // the same layer: its weights are tied
        last_(register_module("last", torch::nn::Linear(width, 1))) {}

  // A replica starts as a new module; its tensors then follow this one's.
  std::shared_ptr<torch::nn::Module> make_replica() const override {
    return std::make_shared<Spring>(width_);
  }

  // Without this each replica would keep the frequencies that it drew itself.
  void visit_extra_tensors(const TensorVisitor& visit) override {
    visit("frequencies", frequencies_);
  }

  // Position at each time [N, 1]. The start is built in: u(0) = 1 and u'(0) = 0.
  torch::Tensor forward(const torch::Tensor& time) {
    const auto angles = time * frequencies_;
    auto x = torch::cat({angles.cos(), angles.sin()}, 1);
    x = again_(hidden_(x).tanh()).tanh();
    const auto from_start = time.square() / (1 + time.square());
    return 1 + from_start * last_(x);
  }

  // By how much `position` violates the equation of motion.
  torch::Tensor residual(const torch::Tensor& time, const torch::Tensor& position) const {
    const auto speed = derivative(position, time);
    return derivative(speed, time) + 2 * kDamping * speed + kFrequency * kFrequency * position;
  }

 private:
  int64_t width_;
  torch::Tensor frequencies_;  // fixed, a bare member
  torch::nn::Linear hidden_, again_, last_;
};

torch::Tensor solution(const torch::Tensor& time) {
  const double w = std::sqrt(kFrequency * kFrequency - kDamping * kDamping);
  return (-kDamping * time).exp() * ((w * time).cos() + kDamping / w * (w * time).sin());
}

}  // namespace

int main() {
  torch::manual_seed(1);
  const auto spring = std::make_shared<Spring>(kWidth);
  lockstep::parallel::DataParallel parallel(spring, {torch::kCPU, torch::kCPU});
  torch::optim::Adam optimizer(parallel.parameters(), 2e-3);  // tied weights once

  const auto time = torch::linspace(0, kEnd, kPoints).unsqueeze(1).requires_grad_();
  const auto loss_of = [&](const torch::Tensor& position) {
    return parallel->residual(time, position).square().mean();
  };
  for (int step = 0; step <= kSteps; ++step) {
    optimizer.zero_grad();
    const auto position = parallel.forward(time);  // 64 times on each replica
    const auto loss = loss_of(position);
    loss.backward();
    optimizer.step();
    if (step % 100 == 0) {
      const auto error = (position - solution(time)).abs().max();
      std::cout << "step " << step << "  loss " << loss.item<float>() << "  largest error "
                << error.item<float>() << std::endl;
    }
  }

  const auto parameters = parallel.parameters();
  const auto split = torch::autograd::grad({loss_of(parallel.forward(time))}, parameters);
  const auto whole = torch::autograd::grad({loss_of(spring->forward(time))}, parameters);
  double difference = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto relative = (split[i] - whole[i]).norm() / whole[i].norm();
    difference = std::max(difference, relative.item<double>());
  }
  std::cout << "gradients of two replicas and of one device: relative difference " << difference
            << '\n';
  return difference < 1e-4 ? 0 : 1;
}
