// SPDX-License-Identifier: Apache-2.0
#include "testing/summands.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/matchers.h"

namespace lockstep::testing {
namespace {

TEST(SummandsTest, DifferFromDeviceToDeviceAndNotFromCallToCall) {
  const c10::Device cpu(c10::kCPU);
  const std::vector<at::Tensor> first = random_on_each({cpu, cpu}, {4}, at::kDouble);
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first[0].scalar_type(), at::kDouble);
  EXPECT_FALSE(at::equal(first[0], first[1]));
  EXPECT_THAT(random_on_each({cpu, cpu}, {4}, at::kDouble)[1], BitwiseEqual(first[1]));
}

TEST(SummandsTest, AreAddedFromTheFirstToTheLast) {
  const at::Tensor big = at::full({1}, 1e8F);
  const at::Tensor one = at::ones({1});
  EXPECT_THAT(successive_sum({big, one, -big}), BitwiseEqual(at::zeros({1})));
  EXPECT_THAT(successive_sum({big, -big, one}), BitwiseEqual(one));
  EXPECT_THAT(big, BitwiseEqual(at::full({1}, 1e8F)));
}

}  // namespace
}  // namespace lockstep::testing
