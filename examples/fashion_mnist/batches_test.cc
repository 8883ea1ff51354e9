// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/batches.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

namespace fashion_mnist {
namespace {

// Three samples: all pixels of sample i are 100 * i, its label is i.
Dataset three_samples() {
  std::vector<at::Tensor> images;
  for (int i = 0; i < 3; ++i) images.push_back(at::full({28, 28}, 100 * i, at::kByte));
  return {at::stack(images), at::arange(3, at::kByte)};
}

TEST(MakeBatchTest, PicksSamplesInTheOrderAskedFor) {
  const Batch batch = make_batch(three_samples(), at::tensor({2, 0}, at::kLong));
  EXPECT_EQ(batch.images.sizes(), (std::vector<int64_t>{2, 1, 28, 28}));
  EXPECT_EQ(batch.images.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(batch.labels, at::tensor({2, 0}, at::kLong)));
  EXPECT_NEAR(batch.images[0][0][5][7].item<double>(), (200 / 255.0 - 0.286) / 0.353, 1e-6);
  EXPECT_NEAR(batch.images[1][0][5][7].item<double>(), -0.286 / 0.353, 1e-6);
}

TEST(MakeBatchTest, LeavesTheStoredBytesAlone) {
  const Dataset dataset = three_samples();
  make_batch(dataset, at::tensor({0, 1, 2}, at::kLong), {at::kCPU, at::kDouble});
  EXPECT_TRUE(at::equal(dataset.images, three_samples().images));
}

TEST(MakeBatchTest, MakesTheDtypeAskedFor) {
  const Batch batch =
      make_batch(three_samples(), at::tensor({1}, at::kLong), {at::kCPU, at::kDouble});
  EXPECT_EQ(batch.images.scalar_type(), at::kDouble);
  EXPECT_EQ(batch.labels.scalar_type(), at::kLong);
}

TEST(ShuffledOrderTest, IsAPermutation) {
  const at::Tensor order = shuffled_order(1000, 1, 0);
  EXPECT_TRUE(at::equal(std::get<0>(order.sort()), at::arange(1000, at::kLong)));
  EXPECT_FALSE(at::equal(order, at::arange(1000, at::kLong)));
}

TEST(ShuffledOrderTest, DependsOnSeedAndEpochAlone) {
  const at::Tensor order = shuffled_order(1000, 1, 2);
  EXPECT_TRUE(at::equal(order, shuffled_order(1000, 1, 2)));
  EXPECT_FALSE(at::equal(order, shuffled_order(1000, 1, 3)));
  EXPECT_FALSE(at::equal(order, shuffled_order(1000, 2, 2)));
  EXPECT_FALSE(at::equal(order, shuffled_order(1000, 2, 1)));
}

}  // namespace
}  // namespace fashion_mnist
