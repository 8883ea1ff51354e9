// SPDX-License-Identifier: Apache-2.0
#include "comm/internal/flat_buffer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/matchers.h"
#include "testing/random.h"

namespace lockstep::comm::internal {
namespace {

using ::lockstep::testing::BitwiseEqual;
using ::lockstep::testing::random_tensor;

std::vector<at::Tensor> odd_layouts() {
  return {random_tensor({2, 3, 4, 5}, 1).contiguous(at::MemoryFormat::ChannelsLast),
          random_tensor({3, 4}, 2).t(), random_tensor({}, 3), at::empty({0, 2}, at::kDouble),
          random_tensor({10}, 4).narrow(0, 3, 4)};
}

void expect_round_trip(const std::vector<at::Tensor>& tensors,
                       const std::vector<at::Tensor>& like) {
  const at::Tensor flat = flatten(tensors, like);
  EXPECT_EQ(flat.dim(), 1);
  const std::vector<at::Tensor> parts = unflatten(flat, like);
  ASSERT_EQ(parts.size(), tensors.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_THAT(parts[i], BitwiseEqual(tensors[i].resolve_conj().resolve_neg()));
    EXPECT_TRUE(parts[i].is_non_overlapping_and_dense());
  }
}

TEST(FlatBufferTest, PacksTensorsWithoutGapsInMemoryOrder) {
  const std::vector<at::Tensor> tensors = odd_layouts();
  expect_round_trip(tensors, tensors);
  const at::Tensor turned = random_tensor({3, 4}, 2);
  EXPECT_THAT(flatten(turned.t(), turned.t()), BitwiseEqual(turned.reshape({-1})));
}

TEST(FlatBufferTest, PacksTensorsWithGapsInRowMajorOrder) {
  std::vector<at::Tensor> tensors = odd_layouts();
  tensors.push_back(random_tensor({6, 6}, 5).slice(1, 0, 6, 2));
  tensors.push_back(random_tensor({3, 1}, 6).expand({3, 4}));
  expect_round_trip(tensors, tensors);
}

TEST(FlatBufferTest, PacksInTheMemoryOrderOfTheTensorsItIsToldToFollow) {
  const at::Tensor plain = random_tensor({2, 3, 4, 5}, 1);
  const at::Tensor last = plain.contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_THAT(flatten(plain, last), BitwiseEqual(flatten(last, last)));
  EXPECT_THAT(flatten(last, plain), BitwiseEqual(plain.reshape({-1})));
  expect_round_trip({plain}, {last});
}

TEST(FlatBufferTest, ResolvesConjugatedAndNegatedTensors) {
  const at::Tensor conjugated = random_tensor({4}, 1, at::kComplexDouble).conj();
  expect_round_trip({conjugated}, {conjugated});
  const at::Tensor negated = at::imag(conjugated);
  ASSERT_TRUE(negated.is_neg());
  expect_round_trip({negated}, {negated});
}

TEST(FlatBufferTest, PartsShareMemoryButNotVersionCounters) {
  const std::vector<at::Tensor> like = {at::ones({2}), at::ones({3})};
  const at::Tensor flat = flatten(like, like);
  const std::vector<at::Tensor> parts = unflatten(flat, like);
  EXPECT_EQ(parts[0].data_ptr(), flat.data_ptr());
  const auto version = parts[1]._version();
  parts[0].zero_();
  EXPECT_EQ(parts[1]._version(), version);
  EXPECT_FALSE(parts[0].is_view());
}

}  // namespace
}  // namespace lockstep::comm::internal
