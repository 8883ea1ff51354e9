// SPDX-License-Identifier: Apache-2.0
// One device listed twice, which NCCL refuses: copies do it, with the right results.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "comm/all_gather.h"
#include "comm/all_reduce.h"
#include "comm/broadcast.h"
#include "comm/nccl_collectives.h"
#include "comm/reduce_add.h"
#include "comm/reduce_add_coalesced.h"
#include "comm/reduce_scatter.h"
#include "testing/matchers.h"
#include "testing/summands.h"
#include "tools/gpu_check/subject.h"

namespace lockstep::gpu_check {
namespace {

using ::lockstep::testing::BitwiseEqual;
using ::lockstep::testing::random_on_each;
using ::lockstep::testing::successive_sum;

class GpuTwiceTest : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_GT(engine_.counters().calls, 0);
    EXPECT_EQ(engine_.nccl_calls(), 0);
  }
  const std::vector<c10::Device> devices_{device(), device()};
  comm::NcclCollectives engine_{nccl()};
  const std::vector<at::Tensor> inputs_ = random_on_each(devices_, {6, 5});
};

TEST_F(GpuTwiceTest, BroadcastsIntoMemoryOfItsOwn) {
  const auto copies = comm::broadcast(inputs_[0], devices_, {&engine_});
  EXPECT_TRUE(copies[0].is_same(inputs_[0]));
  EXPECT_FALSE(copies[1].is_alias_of(inputs_[0]));
  EXPECT_THAT(copies[1], BitwiseEqual(inputs_[0]));
}

TEST_F(GpuTwiceTest, SumsInListOrder) {
  EXPECT_THAT(comm::reduce_add(inputs_, device(), {&engine_}),
              BitwiseEqual(successive_sum(inputs_)));
}

TEST_F(GpuTwiceTest, SumsForBothPositions) {
  for (const at::Tensor& sum : comm::all_reduce(inputs_, {comm::Reduction::kSum, &engine_})) {
    EXPECT_THAT(sum, BitwiseEqual(successive_sum(inputs_)));
  }
}

TEST_F(GpuTwiceTest, SplitsTheSumAndGathersIt) {
  const auto parts = comm::reduce_scatter(inputs_, {comm::Reduction::kSum, &engine_});
  for (const at::Tensor& whole : comm::all_gather(parts, {&engine_})) {
    EXPECT_THAT(whole, BitwiseEqual(successive_sum(inputs_)));
  }
}

class GpuTwiceCoalescedTest : public GpuTwiceTest {
 protected:
  // Coalesced verbs on one device need no engine.
  void TearDown() override { EXPECT_EQ(engine_.nccl_calls(), 0); }
};

TEST_F(GpuTwiceCoalescedTest, BroadcastsAndSumsLists) {
  const std::vector<at::Tensor> list = {inputs_[0], inputs_[1].slice(1, 0, 5, 2)};
  const auto rows = comm::broadcast_coalesced(list, devices_, {1 << 20, &engine_});
  const auto sums = comm::reduce_add_coalesced(rows, device(), {1 << 20, &engine_});
  for (size_t i = 0; i < list.size(); ++i) {
    EXPECT_THAT(rows[1][i], BitwiseEqual(list[i]));
    EXPECT_THAT(sums[i], BitwiseEqual(list[i] + list[i]));
  }
}

}  // namespace
}  // namespace lockstep::gpu_check
