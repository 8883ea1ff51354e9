// SPDX-License-Identifier: Apache-2.0
#include "testing/random.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace lockstep::testing {
namespace {

TEST(RandomTensorTest, EqualSeedsGiveEqualValuesAndOtherSeedsOthers) {
  const at::Tensor first = random_tensor({4, 5}, 7);
  EXPECT_TRUE(at::equal(first, random_tensor({4, 5}, 7)));
  EXPECT_FALSE(at::equal(first, random_tensor({4, 5}, 8)));
}

TEST(RandomTensorTest, LeavesTheGlobalGeneratorAlone) {
  at::manual_seed(3);
  const at::Tensor without = at::rand({4});
  at::manual_seed(3);
  const at::Tensor seeded = random_tensor({100}, 1);
  EXPECT_TRUE(at::equal(without, at::rand({4})));

  at::manual_seed(4);
  EXPECT_TRUE(at::equal(seeded, random_tensor({100}, 1)));
}

TEST(RandomTensorTest, EveryDtypeHasItsRange) {
  for (at::ScalarType dtype :
       {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble}) {
    const at::Tensor values = random_tensor({200}, 1, dtype);
    EXPECT_EQ(values.scalar_type(), dtype);
    EXPECT_LT(std::abs(values.to(at::kComplexDouble).mean().item<c10::complex<double>>()), 0.5);
  }
  for (at::ScalarType dtype : {at::kChar, at::kShort, at::kInt, at::kLong}) {
    const at::Tensor values = random_tensor({200}, 1, dtype);
    EXPECT_EQ(values.scalar_type(), dtype);
    EXPECT_EQ(values.min().item<int64_t>(), -10);
    EXPECT_EQ(values.max().item<int64_t>(), 10);
  }
  const at::Tensor bytes = random_tensor({200}, 1, at::kByte);
  EXPECT_EQ(bytes.min().item<int64_t>(), 0);
  EXPECT_EQ(bytes.max().item<int64_t>(), 10);
  const int64_t coins = random_tensor({200}, 1, at::kBool).sum().item<int64_t>();
  EXPECT_GT(coins, 60);
  EXPECT_LT(coins, 140);
}

TEST(RandomTensorTest, TypesAgreeUpToRounding) {
  EXPECT_TRUE(at::equal(random_tensor({50}, 2).to(at::kFloat), random_tensor({50}, 2, at::kFloat)));
}

}  // namespace
}  // namespace lockstep::testing
