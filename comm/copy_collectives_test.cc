// SPDX-License-Identifier: Apache-2.0
#include "comm/copy_collectives.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "testing/device_sets.h"
#include "testing/matchers.h"
#include "testing/summands.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::BitwiseEqual;
using ::lockstep::testing::DeviceSet;
using ::lockstep::testing::random_on_each;
using ::lockstep::testing::successive_sum;

class DeviceCollectivesTest : public ::testing::TestWithParam<DeviceSet> {};
LOCKSTEP_INSTANTIATE_DEVICE_SETS(DeviceCollectivesTest);

TEST_P(DeviceCollectivesTest, SumsInListOrderRoundingEachPartialSum) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16,
                                     at::kComplexFloat, at::kInt, at::kChar, at::kBool}) {
    for (const int64_t count : {0, 1, 15, 16, 17, 2048, 5003, 70001}) {
      const std::vector<at::Tensor> inputs = random_on_each(GetParam().devices, {count}, dtype);
      const at::Tensor sum = at::empty_like(inputs[0]);
      GetParam().collectives->reduce_add(inputs, sum);
      GetParam().sync();
      EXPECT_THAT(sum, BitwiseEqual(successive_sum(inputs))) << dtype << " " << count;
    }
  }
}

TEST_P(DeviceCollectivesTest, SumsTensorsWhoseStridesDiffer) {
  std::vector<at::Tensor> inputs = random_on_each(GetParam().devices, {3, 4}, at::kFloat);
  inputs.back() = inputs.back().t().contiguous().t();
  const at::Tensor sum = at::empty_strided({3, 4}, {1, 3}, inputs[0].options());
  GetParam().collectives->reduce_add(inputs, sum);
  GetParam().sync();
  EXPECT_THAT(sum, BitwiseEqual(successive_sum(inputs)));
}

TEST_P(DeviceCollectivesTest, LeavesInputsAloneAndRaisesTheVersionOfTheDestination) {
  const std::vector<at::Tensor> inputs = random_on_each(GetParam().devices, {5}, at::kFloat);
  std::vector<at::Tensor> before;
  for (const at::Tensor& input : inputs) {
    before.push_back(input.clone());
  }
  const at::Tensor sum = at::empty_like(inputs[0]);
  const auto version = sum._version();
  GetParam().collectives->reduce_add(inputs, sum);
  GetParam().sync();
  EXPECT_GT(sum._version(), version);
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_THAT(inputs[i], BitwiseEqual(before[i]));
    EXPECT_EQ(inputs[i]._version(), 0);
  }
}

TEST_P(DeviceCollectivesTest, CountsCallsMessagesAndBytes) {
  DeviceCollectives& engine = *GetParam().collectives;
  const int64_t n = static_cast<int64_t>(GetParam().devices.size());
  const std::vector<at::Tensor> tensors = random_on_each(GetParam().devices, {6}, at::kFloat);
  const at::Tensor extra = at::zeros({6}, tensors[0].options());
  engine.reset_counters();
  engine.copy(tensors[0], extra);
  engine.broadcast(extra, tensors);
  engine.reduce_add(tensors, extra);
  GetParam().sync();
  const CollectiveCounters counters = GetParam().counters();
  EXPECT_EQ(counters.calls, 3);
  EXPECT_EQ(counters.messages, 1 + n + (n - 1));
  EXPECT_EQ(counters.bytes, 24 * (1 + n + (n - 1)));
  engine.reset_counters();
  EXPECT_EQ(GetParam().counters().calls, 0);
  EXPECT_EQ(GetParam().counters().messages, 0);
  EXPECT_EQ(GetParam().counters().bytes, 0);
}

TEST_P(DeviceCollectivesTest, RecordsNoGradientHistory) {
  std::vector<at::Tensor> inputs = random_on_each(GetParam().devices, {3}, at::kFloat);
  for (at::Tensor& input : inputs) {
    input.requires_grad_();
  }
  const at::Tensor out = at::zeros({3}, inputs[0].options());
  GetParam().collectives->reduce_add(inputs, out);
  GetParam().collectives->copy(inputs[0], out);
  GetParam().collectives->broadcast(inputs[0], out);
  GetParam().sync();
  EXPECT_FALSE(out.requires_grad());
  EXPECT_FALSE(out.grad_fn());
}

TEST(CopyCollectivesTest, OrderOfTheListDecidesTheRounding) {
  CopyCollectives engine;
  const at::Tensor big = at::full({20}, 1e8F);
  const at::Tensor one = at::ones({20});
  const at::Tensor sum = at::empty({20});
  engine.reduce_add({big, one, -big}, sum);
  EXPECT_THAT(sum, BitwiseEqual(at::zeros({20})));
  engine.reduce_add({big, -big, one}, sum);
  EXPECT_THAT(sum, BitwiseEqual(one));
}

TEST(CopyCollectivesTest, BoolSumsAreALogicalOr) {
  CopyCollectives engine;
  const at::Tensor a = at::tensor({1, 1, 0, 0}, at::kInt).to(at::kBool);
  const at::Tensor b = at::tensor({1, 0, 1, 0}, at::kInt).to(at::kBool);
  const at::Tensor sum = at::empty({4}, at::kBool);
  engine.reduce_add({a, b, a}, sum);
  EXPECT_THAT(sum, BitwiseEqual(at::tensor({1, 1, 1, 0}, at::kInt).to(at::kBool)));
  EXPECT_EQ(sum.view(at::kByte).sum().item<int64_t>(), 3) << "a true cell holds exactly 1";
}

TEST(CopyCollectivesTest, IntegersWrapInTheirOwnDtype) {
  CopyCollectives engine;
  const at::Tensor sum = at::empty({1}, at::kByte);
  engine.reduce_add({at::full({1}, 200, at::kByte), at::full({1}, 100, at::kByte)}, sum);
  EXPECT_EQ(sum.item<int64_t>(), 44);
}

TEST(CopyCollectivesTest, CountsEveryInputWhenNoneIsAtHome) {
  CopyCollectives engine;
  const at::Tensor away = at::empty({4}, at::device(at::kMeta));
  engine.reduce_add({at::ones({4}), at::ones({4})}, away);
  EXPECT_EQ(engine.counters().messages, 2);
}

TEST(CopyCollectivesTest, CountersAreSafeFromManyThreads) {
  CopyCollectives engine;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&engine] {
      const at::Tensor source = at::ones({2});
      const at::Tensor destination = at::zeros({2});
      for (int repeat = 0; repeat < 100; ++repeat) {
        engine.copy(source, destination);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(engine.counters().messages, 400);
  EXPECT_EQ(engine.counters().bytes, 3200);
}

TEST(DefaultCollectivesTest, AreCopies) {
  EXPECT_EQ(default_collectives(c10::kCPU).name(), "copy");
  EXPECT_EQ(&default_collectives(c10::kCPU), &default_collectives(c10::kCPU));
}

}  // namespace
}  // namespace lockstep::comm
