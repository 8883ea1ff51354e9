// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/train.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cmath>

namespace fashion_mnist {
namespace {

// Ten samples, one per class: the brighter, the higher the class.
Dataset ten_samples() {
  std::vector<at::Tensor> images;
  for (int i = 0; i < 10; ++i) images.push_back(at::full({28, 28}, 25 * i, at::kByte));
  return {at::stack(images), at::arange(10, at::kByte)};
}

// A linear model of the mean pixel, its learning rates, and the sizes of the batches it saw.
struct Model {
  torch::nn::Linear linear{1, 10};
  torch::optim::SGD optimizer{linear->parameters(), torch::optim::SGDOptions(0)};
  std::vector<int64_t> batches;
  std::vector<double> rates;

  Forward forward() {
    return [this](const at::Tensor& images) {
      batches.push_back(images.size(0));
      rates.push_back(optimizer.param_groups()[0].options().get_lr());
      return linear(images.mean({1, 2, 3}).unsqueeze(1));
    };
  }
};

EpochPlan plan(int64_t batch_size, double first_lr, double last_lr) {
  return {at::arange(10, at::kLong), batch_size, at::kCPU, first_lr, last_lr};
}

TEST(TrainEpochTest, SeesEverySampleOnceWithASmallLastBatch) {
  Model model;
  const EpochResult result =
      train_epoch(model.forward(), model.optimizer, ten_samples(), plan(4, 0.1, 0.1));
  EXPECT_EQ(model.batches, (std::vector<int64_t>{4, 4, 2}));
  EXPECT_EQ(result.samples, 10);
  EXPECT_GT(result.seconds, 0);
}

TEST(TrainEpochTest, LowersTheLoss) {
  Model model;
  const auto epoch = [&] {
    return train_epoch(model.forward(), model.optimizer, ten_samples(), plan(10, 0.1, 0.1)).loss;
  };
  const double first = epoch();
  for (int i = 0; i < 20; ++i) epoch();
  EXPECT_LT(epoch(), first);
}

TEST(TrainEpochTest, LetsTheLearningRateFallInALine) {
  Model model;
  train_epoch(model.forward(), model.optimizer, ten_samples(), plan(5, 0.4, 0.2));
  ASSERT_EQ(model.rates.size(), 2u);
  EXPECT_DOUBLE_EQ(model.rates[0], 0.4);
  EXPECT_DOUBLE_EQ(model.rates[1], 0.3);
}

TEST(TrainEpochTest, StopsAfterTheBatchWhenAsked) {
  Model model;
  EpochHooks hooks;
  int64_t reported = 0;
  hooks.on_batch = [&](int64_t done, const auto&) { reported = done; };
  hooks.should_stop = [&] { return reported >= 4; };
  const EpochResult result =
      train_epoch(model.forward(), model.optimizer, ten_samples(), plan(2, 0.1, 0.1), hooks);
  EXPECT_EQ(result.samples, 4);
}

TEST(TrainEpochTest, ReportsTheMeanLossSoFar) {
  Model model;
  double last = 0;
  EpochHooks hooks;
  hooks.on_batch = [&](int64_t, const std::function<double()>& mean_loss) { last = mean_loss(); };
  const EpochResult result =
      train_epoch(model.forward(), model.optimizer, ten_samples(), plan(3, 0.1, 0.1), hooks);
  EXPECT_DOUBLE_EQ(last, result.loss);
}

TEST(EvaluateTest, WeighsSamplesNotBatches) {
  // Right on samples 0 to 8, wrong on the last, which is alone in its batch.
  int64_t next = 0;
  const Forward forward = [&](const at::Tensor& images) {
    const at::Tensor classes = at::arange(next, next + images.size(0), at::kLong).clamp_max(8);
    next += images.size(0);
    return at::one_hot(classes, 10).to(at::kFloat) * 50;
  };
  const EpochResult result = evaluate(forward, ten_samples(), {9, at::kCPU, {}});
  EXPECT_EQ(result.samples, 10);
  EXPECT_DOUBLE_EQ(result.accuracy, 0.9);
  EXPECT_NEAR(result.loss, 5.0, 1e-4);
}

TEST(EvaluateTest, RecordsNoGraph) {
  Model model;
  bool required_grad = true;
  const Forward forward = [&](const at::Tensor& images) {
    const at::Tensor scores = model.forward()(images);
    required_grad = scores.requires_grad();
    return scores;
  };
  evaluate(forward, ten_samples(), {});
  EXPECT_FALSE(required_grad);
}

}  // namespace
}  // namespace fashion_mnist
