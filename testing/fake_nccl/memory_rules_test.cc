// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "testing/fake_nccl/rank_set.h"
#include "testing/fake_nccl/simulated_nccl.h"

namespace lockstep::fake_nccl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const bool kDevicesInUse = use_in_tests();

// Calls of rank 1 of two in an open group, which is never carried out after a refusal.
class MemoryRulesTest : public ::testing::Test {
 protected:
  void SetUp() override { simulated_nccl().group_start(); }
  void TearDown() override { simulated_nccl().group_end(); }

  Result call(const void* send, void* recv, size_t count = 8, StreamHandle on = stream(1)) {
    return simulated_nccl().all_reduce(send, recv, count, DataType::kFloat32, RedOp::kSum,
                                       ranks_[1], on);
  }
  void expect_refused(Result result, const char* report) {
    EXPECT_EQ(result, Result::kInvalidArgument);
    EXPECT_THAT(take_reports(),
                ElementsAre(AllOf(HasSubstr("rank 1 (device 1)"), HasSubstr(report))));
  }

  const RankSet ranks_{2};
  const at::Tensor own_ = at::ones({8}, simdev::device(1));
  const at::Tensor other_ = at::ones({8}, simdev::device(1));
};

TEST_F(MemoryRulesTest, BuffersAreNotNull) {
  expect_refused(call(nullptr, own_.data_ptr()), "expected a send buffer of 32 bytes, got null");
  expect_refused(call(own_.data_ptr(), nullptr), "expected a recv buffer of 32 bytes, got null");
}

TEST_F(MemoryRulesTest, OnlyTheRootsBuffersAreLookedAt) {
  EXPECT_EQ(simulated_nccl().broadcast(nullptr, own_.data_ptr(), 8, DataType::kFloat32, 0,
                                       ranks_[1], stream(1)),
            Result::kSuccess);
  EXPECT_EQ(simulated_nccl().reduce(other_.data_ptr(), nullptr, 8, DataType::kFloat32, RedOp::kSum,
                                    0, ranks_[1], stream(1)),
            Result::kSuccess);
  EXPECT_THAT(take_reports(), IsEmpty());
  expect_refused(simulated_nccl().broadcast(nullptr, own_.data_ptr(), 8, DataType::kFloat32, 1,
                                            ranks_[1], stream(1)),
                 "expected a send buffer of 32 bytes, got null");
}

TEST_F(MemoryRulesTest, BuffersAreOnTheRanksDevice) {
  const at::Tensor elsewhere = at::ones({8}, simdev::device(0));
  expect_refused(call(elsewhere.data_ptr(), own_.data_ptr()),
                 "expected the send buffer in live memory of device 1, got memory of device 0");
  const at::Tensor host = at::ones({8});
  expect_refused(call(own_.data_ptr(), host.data_ptr()),
                 "expected the recv buffer in live memory of device 1, got memory that is of no "
                 "device or was freed");
}

TEST_F(MemoryRulesTest, BuffersAreLive) {
  void* freed = nullptr;
  {
    const at::Tensor gone = at::ones({8}, simdev::device(1));
    freed = gone.data_ptr();
    EXPECT_EQ(call(freed, freed), Result::kSuccess);
  }
  expect_refused(call(freed, own_.data_ptr()), "got memory that is of no device or was freed");
}

TEST_F(MemoryRulesTest, BuffersAreLongEnough) {
  expect_refused(call(own_.data_ptr(), other_.data_ptr(), 9),
                 "expected a send buffer of 36 bytes, got 32 bytes to the end of the allocation");
  expect_refused(simulated_nccl().all_gather(own_.data_ptr(), other_.data_ptr(), 8,
                                             DataType::kFloat32, ranks_[1], stream(1)),
                 "expected a recv buffer of 64 bytes, got 32 bytes");
  expect_refused(
      simulated_nccl().reduce_scatter(own_.data_ptr(), other_.data_ptr(), 5, DataType::kFloat32,
                                      RedOp::kSum, ranks_[1], stream(1)),
      "expected a send buffer of 40 bytes, got 32 bytes");
}

TEST_F(MemoryRulesTest, BuffersAreAligned) {
  char* const odd = static_cast<char*>(own_.data_ptr()) + 2;
  expect_refused(call(odd, other_.data_ptr(), 4),
                 "expected the send buffer aligned to the 4 bytes of float32");
}

TEST_F(MemoryRulesTest, ArgumentsAreKnown) {
  expect_refused(call(own_.data_ptr(), own_.data_ptr(), std::numeric_limits<size_t>::max() / 2),
                 "expected a count whose bytes can be counted");
  expect_refused(broadcast(ranks_, 1, own_, own_, 2), "expected a root below 2");
  expect_refused(all_reduce(ranks_, 1, own_, own_, static_cast<RedOp>(77)),
                 "expected a reduction that red_op_create_pre_mul_sum made or a built-in one, got "
                 "the value 77");
  expect_refused(
      simulated_nccl().all_reduce(own_.data_ptr(), own_.data_ptr(), 8, DataType::kFloat8e4m3,
                                  RedOp::kSum, ranks_[1], stream(1)),
      "the fake does not reduce float8e4m3");
}

TEST_F(MemoryRulesTest, StreamsAreOfTheRanksDevice) {
  expect_refused(call(own_.data_ptr(), own_.data_ptr(), 8, stream(0)),
                 "expected a stream of device 1, got one of device 0");
  expect_refused(call(own_.data_ptr(), own_.data_ptr(), 8, nullptr),
                 "expected a stream of device 1, got what is no stream");
}

// Calls that are carried out by both ranks.
class OverlapTest : public ::testing::Test {
 protected:
  at::Tensor part(int rank, int begin, int end) { return memory_[rank].slice(0, begin, end); }
  void expect_overlap(Result result, const char* allowed) {
    EXPECT_EQ(result, Result::kSuccess);
    EXPECT_THAT(take_reports(),
                ElementsAre(AllOf(HasSubstr("rank 0"), HasSubstr("overlap"), HasSubstr(allowed)),
                            AllOf(HasSubstr("rank 1"), HasSubstr("overlap"))));
  }

  const RankSet ranks_{2};
  const std::vector<at::Tensor> memory_ = on_devices(2, [](int) { return at::ones({8}); });
};

TEST_F(OverlapTest, SendAndRecvAreTheSameOrApart) {
  EXPECT_EQ(grouped(2,
                    [&](int rank) {
                      return all_reduce(ranks_, rank, part(rank, 0, 4), part(rank, 4, 8));
                    }),
            Result::kSuccess);
  EXPECT_THAT(take_reports(), IsEmpty());
  expect_overlap(grouped(2,
                         [&](int rank) {
                           return all_reduce(ranks_, rank, part(rank, 0, 4), part(rank, 2, 6));
                         }),
                 "which they may only where send and recv are the same");
}

TEST_F(OverlapTest, AllGatherIsInPlaceAtTheRanksPart) {
  EXPECT_EQ(grouped(2,
                    [&](int rank) {
                      return all_gather(ranks_, rank, part(rank, 4 * rank, 4 * rank + 4),
                                        memory_[rank]);
                    }),
            Result::kSuccess);
  EXPECT_THAT(take_reports(), IsEmpty());
  expect_overlap(grouped(2,
                         [&](int rank) {
                           return all_gather(ranks_, rank, part(rank, 4 - 4 * rank, 8 - 4 * rank),
                                             memory_[rank]);
                         }),
                 "send is at the rank's part of recv");
}

TEST_F(OverlapTest, ReduceScatterIsInPlaceAtTheRanksPart) {
  EXPECT_EQ(grouped(2,
                    [&](int rank) {
                      return reduce_scatter(ranks_, rank, memory_[rank],
                                            part(rank, 4 * rank, 4 * rank + 4));
                    }),
            Result::kSuccess);
  EXPECT_THAT(take_reports(), IsEmpty());
  expect_overlap(grouped(2,
                         [&](int rank) {
                           return reduce_scatter(ranks_, rank, memory_[rank],
                                                 part(rank, 4 - 4 * rank, 8 - 4 * rank));
                         }),
                 "recv is at the rank's part of send");
}

TEST(FreedMemoryTest, IsFoundWhenTheGroupEnds) {
  const RankSet ranks(1);
  simulated_nccl().group_start();
  {
    const at::Tensor gone = at::ones({8}, simdev::device(0));
    EXPECT_EQ(all_reduce(ranks, 0, gone, gone), Result::kSuccess);
  }
  EXPECT_EQ(simulated_nccl().group_end(), Result::kInvalidArgument);
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("was freed before the call was carried out")));
}

}  // namespace
}  // namespace lockstep::fake_nccl
