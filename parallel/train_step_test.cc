// SPDX-License-Identifier: Apache-2.0
// DataParallel::train_step(): forward, loss and backward in one go.
#include <torch/nn/modules/batchnorm.h>
#include <torch/optim/sgd.h>

#include <optional>
#include <string>
#include <thread>

#include "parallel/data_parallel_fixture.h"
#include "testing/warnings.h"

namespace lockstep::parallel {
namespace {

using lockstep::testing::AllClose;
using lockstep::testing::BitwiseEqual;
using lockstep::testing::ThrowsError;

class TrainStepTest : public DataParallelTest {
 protected:
  TrainStepTest() {
    fill(*net_, 3);
    net_->to(first());
  }
  static at::Tensor mean_loss(MlpImpl& net, const at::Tensor& x, const at::Tensor& y) {
    return (net.forward(x) - y).pow(2).mean();
  }
  static at::Tensor sum_loss(MlpImpl& net, const at::Tensor& x, const at::Tensor& y) {
    return (net.forward(x) - y).pow(2).sum();
  }
  // The same chunks one after another on the module itself.
  std::pair<at::Tensor, std::vector<at::Tensor>> in_turn(const at::Tensor& x, const at::Tensor& y) {
    at::Tensor total;
    int64_t begin = 0;
    const auto all = sizes(x.size(0));
    for (const int64_t size : all) {
      const double weight = static_cast<double>(size) / static_cast<double>(x.size(0));
      const at::Tensor loss = mean_loss(*net_, x.narrow(0, begin, size), y.narrow(0, begin, size));
      loss.backward(at::full_like(loss.detach(), weight));
      total = total.defined() ? total + loss.detach() * weight : loss.detach() * weight;
      begin += size;
    }
    return {total, take_gradients(*net_)};
  }

  Mlp net_{3, 4, 2};
};
LOCKSTEP_INSTANTIATE_DATA_PARALLEL(TrainStepTest);

TEST_P(TrainStepTest, GivesTheGradientsOfTheChunksInTurnBitForBit) {
  DataParallel parallel(net_, devices(), options());
  for (const int64_t rows : {8, 7, 2, 1}) {
    const at::Tensor x = data({rows, 3}, 1);
    const at::Tensor y = data({rows, 2}, 2);
    const at::Tensor total = parallel.train_step(mean_loss, x, y);
    const auto gradients = take_gradients(*net_);
    const auto [expected_total, expected] = in_turn(x, y);
    expect_same_bits(gradients, expected);
    EXPECT_THAT(total, AllClose(expected_total, {1e-14, 1e-15}));
    EXPECT_FALSE(total.requires_grad());
    EXPECT_EQ(total.dim(), 0);
    EXPECT_EQ(total.device(), first());
  }
}

TEST_P(TrainStepTest, AMeanIsThatOfTheBatchAndASumItsSum) {
  DataParallel parallel(net_, devices(), options());
  const at::Tensor x = data({7, 3}, 1);
  const at::Tensor y = data({7, 2}, 2);
  for (const bool mean : {true, false}) {
    const at::Tensor total = mean ? parallel.train_step(LossReduction::kMean, mean_loss, x, y)
                                  : parallel.train_step(LossReduction::kSum, sum_loss, x, y);
    const auto gradients = take_gradients(*net_);
    const at::Tensor loss = mean ? mean_loss(*net_, x, y) : sum_loss(*net_, x, y);
    loss.backward();
    expect_close(gradients, take_gradients(*net_));
    EXPECT_THAT(total, AllClose(loss.detach(), {1e-12, 1e-14}));
  }
}

TEST_P(TrainStepTest, AddsToGradientsThatAreThereAndRunsHooksOnceOnTheSum) {
  DataParallel parallel(net_, devices(), options());
  const at::Tensor x = data({6, 3}, 1);
  const at::Tensor y = data({6, 2}, 2);
  parallel.train_step(mean_loss, x, y);
  const at::Tensor once = net_->a->weight.grad().clone();
  parallel.train_step(mean_loss, x, y);
  EXPECT_THAT(net_->a->weight.grad(), BitwiseEqual(once + once));
  take_gradients(*net_);
  int calls = 0;
  net_->a->weight.register_hook([&calls](const at::Tensor& gradient) {
    ++calls;
    return gradient * 10;
  });
  parallel.train_step(mean_loss, x, y);
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(net_->a->weight.grad(), BitwiseEqual(once * 10));
}

TEST_P(TrainStepTest, TrainsLikeOneDevice) {
  DataParallel parallel(net_, devices(), options());
  torch::optim::SGD optimizer(parallel.parameters(), 0.1);
  Mlp other(3, 4, 2);
  fill(*other, 3);
  other->to(first());
  torch::optim::SGD other_optimizer(other->parameters(), 0.1);
  for (int step = 0; step < 5; ++step) {
    const at::Tensor x = data({7, 3}, 10 + step);
    const at::Tensor y = data({7, 2}, 20 + step);
    optimizer.zero_grad();
    parallel.train_step(mean_loss, x, y);
    optimizer.step();
    other_optimizer.zero_grad();
    mean_loss(*other, x, y).backward();
    other_optimizer.step();
  }
  expect_close(net_->parameters(), other->parameters());
}

TEST_P(TrainStepTest, FrozenParametersInputsAndTensorsFromOutsideAreServed) {
  DataParallel parallel(net_, devices(), options());
  net_->a->weight.set_requires_grad(false);
  const at::Tensor x = data({7, 3}, 1).requires_grad_();
  const at::Tensor y = data({7, 2}, 2);
  const at::Tensor scale = data({1}, 5).requires_grad_();
  const auto loss = [&](MlpImpl& net, const at::Tensor& x, const at::Tensor& y) {
    return (net.forward(x) * scale.to(x.device()) - y).pow(2).mean();
  };
  parallel.train_step(loss, x, y);
  EXPECT_FALSE(net_->a->weight.grad().defined());
  auto gradients = take_gradients(*net_);
  const std::vector<at::Tensor> others{x.grad(), scale.grad()};
  x.mutable_grad() = at::Tensor();
  scale.mutable_grad() = at::Tensor();
  loss(*net_, x, y).backward();
  const auto expected = take_gradients(*net_);
  expect_close({gradients.begin() + 1, gradients.end()}, {expected.begin() + 1, expected.end()});
  expect_close(others, {x.grad(), scale.grad()});
}

TEST_P(TrainStepTest, BufferUpdatesOfTheFirstChunkArrive) {
  torch::nn::BatchNorm1d norm(2);
  norm->to(first(), at::kDouble);
  DataParallel parallel(norm, devices(), options());
  const at::Tensor x = data({8, 2}, 1);
  parallel.train_step([](torch::nn::BatchNorm1dImpl& norm,
                         const at::Tensor& x) { return norm.forward(x).pow(2).mean(); },
                      x);
  EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 1);
  EXPECT_THAT(norm->running_mean.to(at::kDouble),
              AllClose(x.narrow(0, 0, sizes(8)[0]).mean(0) * 0.1));
}

TEST_P(TrainStepTest, ALossMustBeAScalarThatRequiresGrad) {
  DataParallel parallel(net_, devices(), options());
  const at::Tensor x = data({6, 3}, 1);
  EXPECT_THAT(
      [&] {
        parallel.train_step([](MlpImpl& net, const at::Tensor& x) { return net.forward(x); }, x);
      },
      ThrowsError("[DataParallel] train_step: expected a loss without dimensions"));
  EXPECT_THAT(
      [&] { parallel.train_step([](MlpImpl&, const at::Tensor&) { return at::Tensor(); }, x); },
      ThrowsError("[DataParallel] train_step: expected a loss without dimensions"));
  EXPECT_THAT(
      [&] {
        parallel.train_step(
            [](MlpImpl& net, const at::Tensor& x) { return net.forward(x).sum().detach(); }, x);
      },
      ThrowsError("[DataParallel] train_step: expected a loss that requires grad"));
  for (const at::Tensor& gradient : take_gradients(*net_)) {
    EXPECT_FALSE(gradient.defined());
  }
}

TEST_P(TrainStepTest, WhatALossThrowsArrivesAndTheNextStepWorks) {
  DataParallel parallel(net_, devices(), options());
  const at::Tensor x = data({6, 3}, 1);
  const at::Tensor y = data({6, 2}, 2);
  EXPECT_THROW(parallel.train_step(
                   [](MlpImpl& net, const at::Tensor& x) -> at::Tensor {
                     if (x.size(0) > 0) throw std::out_of_range("mine");
                     return net.forward(x).sum();
                   },
                   x),
               std::out_of_range);
  for (const at::Tensor& gradient : take_gradients(*net_)) {
    EXPECT_FALSE(gradient.defined());
  }
  parallel.train_step(mean_loss, x, y);
  const auto gradients = take_gradients(*net_);
  expect_same_bits(gradients, in_turn(x, y).second);
}

TEST_P(TrainStepTest, WhatTheLastReplicaAloneThrowsArrivesWhileOthersWait) {
  DataParallel parallel(net_, devices(), options());
  at::Tensor x = at::zeros({6, 3}, at::kDouble).to(first());
  x[-1].fill_(1);
  const auto loss = [](MlpImpl& net, const at::Tensor& x) {
    TORCH_CHECK_VALUE(x[-1][0].item<double>() == 0, "the last row");
    return net.forward(x).sum();
  };
  EXPECT_THAT([&] { parallel.train_step(loss, x); }, ThrowsError("the last row"));
  for (const at::Tensor& gradient : take_gradients(*net_)) {
    EXPECT_FALSE(gradient.defined());
  }
  x.zero_();
  parallel.train_step(loss, x);
  EXPECT_TRUE(net_->a->weight.grad().defined());
}

TEST_P(TrainStepTest, OptionsForOutputsDoNotTouchTheLoss) {
  DataParallelOptions several = options();
  several.output_dims = {0, 1, 1};
  several.output_device = c10::Device(c10::kCPU);
  DataParallel parallel(net_, devices(), several);
  for (const int64_t rows : {6, 1}) {
    const at::Tensor total = parallel.train_step(mean_loss, data({rows, 3}, 1), data({rows, 2}, 2));
    EXPECT_EQ(total.device(), c10::Device(c10::kCPU));
  }
}

TEST_P(TrainStepTest, ItsLossesAreScalarsWithoutAWarning) {
  DataParallel parallel(net_, devices(), options());
  const lockstep::testing::Warnings warnings;
  parallel.train_step(mean_loss, data({6, 3}, 1), data({6, 2}, 2));
  EXPECT_TRUE(warnings.messages.empty());
}

TEST_P(TrainStepTest, AHookMayUseTheObjectItself) {
  DataParallel parallel(net_, devices(), options());
  const at::Tensor x = data({6, 3}, 1);
  bool ran = false;
  net_->a->weight.register_hook([&](const at::Tensor&) {
    const at::NoGradGuard no_grad;
    ran = parallel.forward(x).size(0) == 6;
  });
  parallel.train_step(mean_loss, x, data({6, 2}, 2));
  EXPECT_TRUE(ran);
}

TEST_P(TrainStepTest, ArgumentsOfAnyKindReachTheLoss) {
  DataParallel parallel(net_, devices(), options());
  const at::Tensor x = data({7, 3}, 1);
  const at::Tensor y = data({2, 7}, 2);
  const at::Tensor scale = data({2}, 3).requires_grad_();
  const at::Tensor computed = scale.exp();
  const auto loss = [](MlpImpl& net, const at::Tensor& x, const std::optional<at::Tensor>& y,
                       const at::Tensor& scale, const std::string& kind) {
    TORCH_CHECK(kind == "squares");
    return (net.forward(x) * scale - y->t()).pow(2).mean();
  };
  parallel.train_step(loss, x, split_along(std::optional(y), 1), to_all_replicas(computed),
                      "squares");
  auto gradients = take_gradients(*net_);
  gradients.push_back(scale.grad());
  scale.mutable_grad() = at::Tensor();
  loss(*net_, x, y, scale.exp(), "squares").backward();
  auto expected = take_gradients(*net_);
  expected.push_back(scale.grad());
  expect_close(gradients, expected);
}

TEST_P(TrainStepTest, StepsOfSeveralThreadsAddUp) {
  DataParallel parallel(net_, devices(), options());
  const at::Tensor x = at::ones({6, 3}, at::kDouble).to(first());
  const at::Tensor y = at::ones({6, 2}, at::kDouble).to(first());
  parallel.train_step(mean_loss, x, y);
  const auto once = take_gradients(*net_);
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (int step = 0; step < 8; ++step) {
        parallel.train_step(mean_loss, x, y);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  const auto all = take_gradients(*net_);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_THAT(all[i], AllClose(once[i] * 16, {1e-12, 1e-13}));
  }
}

}  // namespace
}  // namespace lockstep::parallel
