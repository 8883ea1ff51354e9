// SPDX-License-Identifier: Apache-2.0
// Three training steps with each optimizer of torch::optim, and what goes with training.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <vector>

#include "testing/simdev/operator_cases.h"

namespace lockstep::simdev {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
namespace optim = torch::optim;

nn::Sequential network(Inputs& in) {
  return in.layer(nn::Sequential(nn::Conv2d(nn::Conv2dOptions(3, 4, 3).padding(1)),
                                 nn::BatchNorm2d(4), nn::ReLU(), nn::Flatten(),
                                 nn::Linear(4 * 4 * 4, 5)));
}

std::vector<at::Tensor> values_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> values;
  for (const at::Tensor& parameter : parameters) {
    values.push_back(parameter.detach().clone());
  }
  return values;
}

template <class Optimizer, class Options>
Outputs train(Inputs& in, Options options) {
  auto net = network(in);
  Optimizer optimizer(net->parameters(), options);
  const at::Tensor x = in.plain(6, 3, 4, 4), y = in.integers(5, 6);
  for (int step = 0; step < 3; ++step) {
    const auto closure = [&] {
      optimizer.zero_grad();
      at::Tensor loss = F::cross_entropy(net->forward(x), y);
      loss.backward();
      return loss;
    };
    closure();
    optimizer.step(closure);
  }
  return values_of(net->parameters());
}

Outputs train_embedding(Inputs& in, bool adagrad) {
  auto table = in.layer(nn::Embedding(nn::EmbeddingOptions(10, 4).sparse(true)));
  optim::SGD sgd(table->parameters(), optim::SGDOptions(0.1));
  optim::Adagrad adagrad_optimizer(table->parameters(), optim::AdagradOptions(0.1));
  for (int step = 0; step < 3; ++step) {
    table->zero_grad();
    table(in.integers(10, 3, 5)).pow(2).sum().backward();
    adagrad ? adagrad_optimizer.step() : sgd.step();
  }
  return values_of(table->parameters());
}

struct FusedState {
  std::vector<at::Tensor> values, gradients, first, second, largest, steps;
};

FusedState fused_state(Inputs& in) {
  return {{in.plain(5)},
          {in.plain(5)},
          {in.plain(5)},
          {in.plain(5).abs()},
          {},
          {at::ones({}, at::TensorOptions(in.device()))}};
}

const OperatorCase kOptimizers[] = {
    {"SGD", [](Inputs& in) { return train<optim::SGD>(in, optim::SGDOptions(0.1)); }},
    {"SGDMomentum",
     [](Inputs& in) {
       return train<optim::SGD>(
           in, optim::SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.01));
     }},
    {"Adam", [](Inputs& in) { return train<optim::Adam>(in, optim::AdamOptions(0.01)); }},
    {"AdamAmsgrad",
     [](Inputs& in) { return train<optim::Adam>(in, optim::AdamOptions(0.01).amsgrad(true)); }},
    {"AdamW", [](Inputs& in) { return train<optim::AdamW>(in, optim::AdamWOptions(0.01)); }},
    {"RMSprop",
     [](Inputs& in) {
       return train<optim::RMSprop>(in, optim::RMSpropOptions(0.01).momentum(0.5).centered(true));
     }},
    {"Adagrad", [](Inputs& in) { return train<optim::Adagrad>(in, optim::AdagradOptions(0.01)); }},
    {"LBFGS",
     [](Inputs& in) { return train<optim::LBFGS>(in, optim::LBFGSOptions(0.1).max_iter(3)); }},
    {"SGDSparse", [](Inputs& in) { return train_embedding(in, false); }},
    {"AdagradSparse", [](Inputs& in) { return train_embedding(in, true); }},
    {"fused_adam",
     [](Inputs& in) {
       FusedState s = fused_state(in);
       at::_fused_adam_(s.values, s.gradients, s.first, s.second, s.largest, s.steps, 0.1, 0.9,
                        0.999, 0, 1e-8, false, false);
       return Outputs(std::vector<at::Tensor>{s.values[0], s.first[0], s.second[0]});
     }},
    {"fused_sgd",
     [](Inputs& in) {
       FusedState s = fused_state(in);
       at::_fused_sgd_(s.values, s.gradients, s.first, 0, 0.9, 0.1, 0, false, false, true);
       return Outputs(s.values);
     }},
    {"clip_grad_norm",
     [](Inputs& in) {
       const at::Tensor p = in.plain(5).requires_grad_(true);
       (p * 3).sum().backward();
       nn::utils::clip_grad_norm_({p}, 1.0);
       return p.grad();
     }},
    {"clip_grad_value",
     [](Inputs& in) {
       const at::Tensor p = in.plain(5).requires_grad_(true);
       (p * 3).sum().backward();
       nn::utils::clip_grad_value_(p, 1.0);
       return p.grad();
     }},
    {"unscale_gradients",
     [](Inputs& in) {
       std::vector<at::Tensor> gradients = {in.plain(5)};
       at::Tensor found = at::zeros({1}, at::TensorOptions(in.device()));
       at::_amp_foreach_non_finite_check_and_unscale_(gradients, found, in.unit(1).detach());
       return Outputs(std::vector<at::Tensor>{gradients[0], found});
     }},
    {"foreach",
     [](Inputs& in) {
       std::vector<at::Tensor> tensors = {in.plain(3), in.plain(4), in.plain(2, 2)};
       at::_foreach_add_(tensors, tensors, 2);
       at::_foreach_mul_(tensors, 3);
       return at::stack(at::_foreach_norm(at::_foreach_abs(tensors), 2));
     }},
    {"gradient_penalty",
     [](Inputs& in) {
       auto net = in.layer(nn::Sequential(nn::Linear(4, 8), nn::Tanh(), nn::Linear(8, 1)));
       const at::Tensor x = in.real(3, 4);
       return (torch::autograd::grad({net->forward(x).sum()}, {x}, {}, true, true)[0].norm() - 1)
           .pow(2);
     }},
    {"init",
     [](Inputs& in) {
       auto linear = in.layer(nn::Linear(6, 6));
       nn::init::xavier_uniform_(linear->weight);
       at::Tensor other = in.plain(6, 6);
       nn::init::kaiming_normal_(other);
       return linear(other);
     }},
};
LOCKSTEP_OPERATOR_TABLE(OptimizerTest, kOptimizers);

}  // namespace
}  // namespace lockstep::simdev
