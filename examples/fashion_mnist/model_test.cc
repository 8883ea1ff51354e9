// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/model.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fashion_mnist {
namespace {

TEST(NetTest, ScoresEveryClassOfEveryImage) {
  Net net;
  EXPECT_EQ(net(at::randn({5, 1, 28, 28})).sizes(), (std::vector<int64_t>{5, 10}));
  EXPECT_EQ(net(at::randn({0, 1, 28, 28})).sizes(), (std::vector<int64_t>{0, 10}));
}

TEST(NetTest, NamesItsParametersWithoutPrefix) {
  Net net;
  EXPECT_THAT(net->named_parameters().keys(),
              ::testing::ElementsAre("conv1.weight", "norm1.weight", "norm1.bias", "conv2.weight",
                                     "norm2.weight", "norm2.bias", "hidden.weight", "hidden.bias",
                                     "scores.weight", "scores.bias"));
}

TEST(NetTest, ClonesToEqualAndSeparateParameters) {
  Net net(NetOptions{0.5});
  const auto copy = net->clone();
  const auto ours = net->parameters();
  const auto theirs = copy->parameters();
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_TRUE(at::equal(ours[i], theirs[i]));
    EXPECT_FALSE(ours[i].is_same(theirs[i]));
  }
}

TEST(NetTest, DropsOutInTrainingOnly) {
  Net net(NetOptions{0.5});
  const at::Tensor images = at::randn({2, 1, 28, 28});
  EXPECT_FALSE(at::equal(net(images), net(images)));
  net->eval();
  EXPECT_TRUE(at::equal(net(images), net(images)));
}

TEST(NetTest, IsDeterministicInTrainingWithoutDropout) {
  Net net(NetOptions{0.0});
  const at::Tensor images = at::randn({2, 1, 28, 28});
  EXPECT_TRUE(at::equal(net(images), net(images)));
}

}  // namespace
}  // namespace fashion_mnist
