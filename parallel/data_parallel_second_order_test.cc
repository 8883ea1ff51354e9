// SPDX-License-Identifier: Apache-2.0
// Gradients of gradients through DataParallel.
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "parallel/data_parallel_fixture.h"
#include "testing/gradcheck.h"

namespace lockstep::parallel {
namespace {

using lockstep::testing::AllClose;
using lockstep::testing::BitwiseEqual;
using lockstep::testing::ThrowsError;
using torch::autograd::grad;

using Forward = std::function<at::Tensor(const at::Tensor&)>;

class DataParallelSecondOrderTest : public DataParallelTest {
 protected:
  Mlp make_net() const {
    Mlp net(2, 4, 1);
    fill(*net, 1);
    net->to(first());
    return net;
  }
};
LOCKSTEP_INSTANTIATE_DATA_PARALLEL(DataParallelSecondOrderTest);

// Mean slope of the output in the inputs; everything in between goes out of scope.
at::Tensor mean_slope(const Forward& forward, const at::Tensor& x) {
  return grad({forward(x).sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0].mean();
}

TEST_P(DataParallelSecondOrderTest, APenaltyReachesTheWeights) {
  torch::nn::Linear linear(4, 1);
  linear->to(first(), at::kDouble);
  DataParallel parallel(linear, devices(), options());
  const at::Tensor x = at::ones({2, 4}, at::kDouble).to(first()).requires_grad_();
  mean_slope([&](const at::Tensor& input) { return parallel.forward(input); }, x).backward();
  EXPECT_THAT(linear->weight.grad(), BitwiseEqual(at::full({1, 4}, 0.25, x.options())));
  const at::Tensor bias = linear->bias.grad();
  EXPECT_TRUE(!bias.defined() || bias.item<double>() == 0.0);
}

TEST_P(DataParallelSecondOrderTest, ReplicasMadeForOneCallServeTheSecondOrderToo) {
  torch::nn::Linear linear(4, 1);
  linear->to(first(), at::kDouble);
  const at::Tensor x = at::ones({2, 4}, at::kDouble).to(first()).requires_grad_();
  mean_slope([&](const at::Tensor& in) { return data_parallel(linear, in, devices()); }, x)
      .backward();
  EXPECT_THAT(linear->weight.grad(), BitwiseEqual(at::full({1, 4}, 0.25, x.options())));
}

TEST_P(DataParallelSecondOrderTest, AgreesWithNumericDifferences) {
  Mlp net = make_net();
  DataParallel parallel(net, devices(), options());
  const at::Tensor x = data({5, 2}, 3).requires_grad_();
  const auto function = [&](const std::vector<at::Tensor>& in) {
    return std::vector<at::Tensor>{parallel.forward(in[0])};
  };
  EXPECT_TRUE(lockstep::testing::gradcheck(function, {x}));
  EXPECT_TRUE(lockstep::testing::gradgradcheck(function, {x}));
}

TEST_P(DataParallelSecondOrderTest, LossAndPenaltyAndAnEarlierForwardGoTogether) {
  Mlp net = make_net();
  DataParallel parallel(net, devices(), options());
  const auto gradients = [&](const Forward& forward) {
    const at::Tensor x = data({6, 2}, 4).requires_grad_();
    const at::Tensor earlier = forward(x.detach() * 2);
    const at::Tensor output = forward(x);
    const at::Tensor slope = grad({output.sum()}, {x}, {}, true, true)[0];
    (output.pow(2).mean() + (slope.norm(2, 1) - 1).pow(2).mean() + earlier.mean()).backward();
    auto all = take_gradients(*net);
    all.push_back(x.grad());
    return all;
  };
  for (int repeat = 0; repeat < 3; ++repeat) {
    const auto actual = gradients([&](const at::Tensor& in) { return parallel.forward(in); });
    expect_close(actual, gradients([&](const at::Tensor& in) { return net->forward(in); }),
                 {1e-11, 1e-13});
  }
}

TEST_P(DataParallelSecondOrderTest, AnEvaluationMayComeBetweenAForwardAndItsPenalty) {
  const auto make = [this] {
    auto module = make_function_module(
        2, [](const at::Tensor& w, const at::Tensor& x) { return x * x * w * w; });
    // A sparse one is made anew by every forward. On its device: to() cannot take it to every type.
    module->register_buffer("mask", at::eye(2, at::kDouble).to(first()).to_sparse());
    return module;
  };
  const auto module = make();
  module->to(first());
  auto settings = options();
  settings.replicate.factory = make;
  DataParallel parallel(module, devices(), settings);
  const auto penalty = [&](const auto& forward) {
    const at::Tensor x = at::full({6, 2}, 1.5, at::kDouble).to(first()).requires_grad_();
    const at::Tensor out = forward(x);
    {
      const at::NoGradGuard no_grad;
      forward(x);
    }
    const at::Tensor gradient = torch::autograd::grad({out.sum()}, {x}, {}, /*retain_graph=*/true,
                                                      /*create_graph=*/true)[0];
    gradient.pow(2).sum().backward();
    return take_gradients(*module);
  };
  const auto together = penalty([&](const at::Tensor& x) { return parallel.forward(x); });
  expect_close(together, penalty([&](const at::Tensor& x) { return module->forward(x); }));
}

TEST_P(DataParallelSecondOrderTest, HessianProductsWithTheParameters) {
  Mlp net = make_net();
  DataParallel parallel(net, devices(), options());
  const at::Tensor x = data({5, 2}, 5);
  const auto product = [&](const at::Tensor& output) {
    const auto first_order =
        grad({output.pow(2).sum()}, net->parameters(), {}, /*retain_graph=*/true, true);
    at::Tensor sum = at::zeros({}, x.options());
    for (size_t i = 0; i < first_order.size(); ++i) {
      sum = sum + (first_order[i] * data(first_order[i].sizes(), 50 + i)).sum();
    }
    return grad({sum}, net->parameters());
  };
  expect_close(product(parallel.forward(x)), product(net->forward(x)), {1e-11, 1e-13});
}

TEST_P(DataParallelSecondOrderTest, ABackwardThatRecordsLeavesDifferentiableGradients) {
  Mlp net = make_net();
  DataParallel parallel(net, devices(), options());
  const at::Tensor x = data({5, 2}, 5);
  const auto second = [&](const at::Tensor& output) {
    output.pow(2).sum().backward({}, /*retain_graph=*/true, /*create_graph=*/true);
    const at::Tensor gradient = net->a->weight.grad();
    EXPECT_TRUE(gradient.requires_grad());
    for (at::Tensor& parameter : net->parameters()) {
      parameter.mutable_grad() = at::Tensor();
    }
    return grad({gradient.pow(2).sum()}, {net->a->weight, net->b->weight});
  };
  expect_close(second(parallel.forward(x)), second(net->forward(x)), {1e-11, 1e-13});
}

TEST_P(DataParallelSecondOrderTest, APenaltyThatReachesOneReplicaOnly) {
  const auto module = make_function_module(2, [](const at::Tensor& w, const at::Tensor& x) {
    return x[0][0].item<double>() > 0 ? (x * w).pow(3) : x * 1.0;
  });
  module->to(first());
  DataParallel parallel(module, devices(), options());
  at::Tensor x = at::zeros({static_cast<int64_t>(num_devices()), 2}, at::kDouble).to(first());
  x[0].fill_(2);
  x.requires_grad_();
  // d(sum)/dx = 3 x^2 w^3 = 12 in row 0, so the slope's weight gradient is 9 x^2 w^2 = 36.
  grad({parallel.forward(x).sum()}, {x}, {}, true, true)[0].sum().backward();
  EXPECT_THAT(module->weight.grad().to(at::kCPU), AllClose(at::full({2}, 36.0, at::kDouble)));
}

TEST_P(DataParallelSecondOrderTest, AModuleMayDifferentiateInsideItsForward) {
  // An energy whose forces are its output, as in physics.
  struct Forces : torch::nn::Cloneable<Forces> {
    Forces() { Forces::reset(); }
    void reset() override { net = register_module("net", Mlp(2, 4, 1)); }
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor position = x.requires_grad() ? x : x.detach().requires_grad_();
      return -grad({net->forward(position).sum()}, {position}, {}, true, true)[0];
    }
    Mlp net{nullptr};
  };
  const auto module = std::make_shared<Forces>();
  fill(*module, 7);
  module->to(first());
  DataParallel parallel(module, devices(), options());
  for (const bool with_inputs : {false, true}) {
    const auto run = [&](const Forward& forward) {
      const at::Tensor x = data({5, 2}, 3).requires_grad_(with_inputs);
      forward(x).pow(2).sum().backward();
      auto all = take_gradients(*module);
      all.push_back(x.grad());
      return all;
    };
    const auto actual = run([&](const at::Tensor& x) { return parallel.forward(x); });
    expect_close(actual, run([&](const at::Tensor& x) { return module->forward(x); }),
                 {1e-11, 1e-13});
  }
}

TEST_P(DataParallelSecondOrderTest, AWassersteinGanWithPenaltyTrainsAsOnOneDevice) {
  const at::Tensor batch = data({8, 2}, 11);
  const auto train = [&](const Mlp& critic, const Forward& forward) {
    std::vector<double> losses;
    for (int step = 0; step < 20; ++step) {
      const at::Tensor x = batch.clone().requires_grad_();
      const at::Tensor output = forward(x);
      const at::Tensor slope = grad({output.sum()}, {x}, {}, true, true)[0];
      const at::Tensor loss = output.mean() + 10 * (slope.norm(2, 1) - 1).pow(2).mean();
      loss.backward();
      losses.push_back(loss.item<double>());
      const at::NoGradGuard no_grad;
      for (at::Tensor& parameter : critic->parameters()) {
        parameter.sub_(0.01 * parameter.grad());
        parameter.mutable_grad() = at::Tensor();
      }
    }
    return losses;
  };
  Mlp one = make_net();
  Mlp many = make_net();
  DataParallel parallel(many, devices(), options());
  const auto expected = train(one, [&](const at::Tensor& x) { return one->forward(x); });
  const auto actual = train(many, [&](const at::Tensor& x) { return parallel.forward(x); });
  for (size_t step = 0; step < expected.size(); ++step) {
    EXPECT_NEAR(actual[step], expected[step], 1e-10 * std::abs(expected[step])) << "step " << step;
  }
}

TEST_P(DataParallelSecondOrderTest, OrdinaryStepsGoOnAfterARecordedOne) {
  Mlp net = make_net();
  DataParallel parallel(net, devices(), options());
  const at::Tensor x = data({5, 2}, 3).requires_grad_();
  mean_slope([&](const at::Tensor& in) { return parallel.forward(in); }, x).backward();
  take_gradients(*net);
  parallel.forward(x.detach()).pow(2).sum().backward();
  const auto gradients = take_gradients(*net);
  net->forward(x.detach()).pow(2).sum().backward();
  expect_close(gradients, take_gradients(*net));
}

}  // namespace
}  // namespace lockstep::parallel
