// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
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

std::vector<at::Tensor> ones(int ranks, int64_t count = 4) {
  return on_devices(ranks, [&](int) { return at::ones({count}); });
}

float first(const at::Tensor& tensor) { return tensor[0].item<float>(); }

TEST(GroupRulesTest, AnEndNeedsAStart) {
  EXPECT_EQ(simulated_nccl().group_start(), Result::kSuccess);
  EXPECT_EQ(simulated_nccl().group_end(), Result::kSuccess);
  EXPECT_THAT(take_reports(), IsEmpty());
  EXPECT_EQ(simulated_nccl().group_end(), Result::kInvalidUsage);
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("expected a group_start of this thread")));
}

TEST(GroupRulesTest, CallsRunAtTheOutermostEnd) {
  const RankSet ranks(2);
  const auto sent = ones(2), got = ones(2);
  simulated_nccl().group_start();
  EXPECT_EQ(grouped(2, [&](int rank) { return all_reduce(ranks, rank, sent[rank], got[rank]); }),
            Result::kSuccess);
  EXPECT_EQ(open_groups(), 1);
  EXPECT_EQ(first(got[1]), 1);
  EXPECT_EQ(simulated_nccl().group_end(), Result::kSuccess);
  EXPECT_EQ(first(got[1]), 2);
  EXPECT_EQ(counters().groups, 1);
}

TEST(GroupRulesTest, BlockingAndNonBlockingAreNotMixed) {
  const RankSet blocking(1), non_blocking(1, Mode::kNonBlocking);
  const auto memory = ones(1), other = ones(1);
  simulated_nccl().group_start();
  EXPECT_EQ(all_reduce(blocking, 0, memory[0], memory[0]), Result::kSuccess);
  EXPECT_EQ(all_reduce(non_blocking, 0, other[0], other[0]), Result::kInvalidArgument);
  EXPECT_EQ(simulated_nccl().group_end(), Result::kInvalidArgument);
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("of which one is blocking and one is not")));
  EXPECT_EQ(counters().calls, 0);
}

TEST(GroupRulesTest, AFailedCallFailsItsGroup) {
  const RankSet ranks(2);
  const auto memory = ones(2);
  const Result result = grouped(2, [&](int rank) {
    return simulated_nccl().all_reduce(memory[rank].data_ptr(), memory[rank].data_ptr(), 4,
                                       rank == 0 ? DataType::kFloat32 : static_cast<DataType>(99),
                                       RedOp::kSum, ranks[rank], stream(rank));
  });
  EXPECT_EQ(result, Result::kInvalidArgument);
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("expected a dtype of nccl.h")));
  EXPECT_EQ(counters().calls, 0);
  EXPECT_EQ(open_groups(), 0);
  // The next one is not hurt.
  EXPECT_EQ(
      grouped(2, [&](int rank) { return all_reduce(ranks, rank, memory[rank], memory[rank]); }),
      Result::kSuccess);
}

TEST(GroupRulesTest, AThreadCallsForItsRanksInOneGroup) {
  const RankSet ranks(2, Mode::kNonBlocking);
  const auto memory = ones(2);
  EXPECT_EQ(all_reduce(ranks, 0, memory[0], memory[0]), Result::kInProgress);
  EXPECT_EQ(all_reduce(ranks, 1, memory[1], memory[1]), Result::kInProgress);
  Result state = Result::kSuccess;
  simulated_nccl().comm_get_async_error(ranks[0], &state);
  EXPECT_EQ(state, Result::kInProgress);
  EXPECT_EQ(wait(ranks[1]), Result::kSuccess);
  EXPECT_EQ(wait(ranks[0]), Result::kSuccess);
  EXPECT_THAT(take_reports(),
              ElementsAre(HasSubstr("one thread calls for ranks 0 and 1 outside of one group")));
}

TEST(GroupRulesTest, ThreadsCallForTheirRankAlone) {
  const RankSet ranks(2);
  const auto memory = ones(2);
  Result other = Result::kInternalError;
  std::thread thread([&] { other = all_reduce(ranks, 1, memory[1], memory[1]); });
  EXPECT_EQ(all_reduce(ranks, 0, memory[0], memory[0]), Result::kSuccess);
  thread.join();
  EXPECT_EQ(other, Result::kSuccess);
  EXPECT_EQ(first(memory[0]), 2);
  EXPECT_EQ(counters().groups, 0);
}

TEST(GroupRulesTest, CallsOfAGroupShareNoMemoryThatIsWritten) {
  const RankSet ranks(2);
  const auto memory = ones(2, 8), other = ones(2, 8);
  const auto part = [&](int rank, int begin) { return memory[rank].slice(0, begin, begin + 4); };
  const auto other_part = [&](int rank, int begin) {
    return other[rank].slice(0, begin, begin + 4);
  };
  EXPECT_EQ(grouped(2,
                    [&](int rank) {
                      // Both read one part, and write two.
                      all_reduce(ranks, rank, part(rank, 0), other_part(rank, 0));
                      return all_reduce(ranks, rank, part(rank, 0), other_part(rank, 4));
                    }),
            Result::kSuccess);
  EXPECT_THAT(take_reports(), IsEmpty());
  EXPECT_EQ(grouped(2,
                    [&](int rank) {
                      all_reduce(ranks, rank, part(rank, 0), other_part(rank, 0));
                      return broadcast(ranks, rank, other_part(rank, 2), part(rank, 4), 0);
                    }),
            Result::kSuccess);
  EXPECT_THAT(
      take_reports(),
      ElementsAre(AllOf(HasSubstr("rank 0 (device 0)"), HasSubstr("all_reduce of 4 float32"),
                        HasSubstr("broadcast of 4 float32 from root 0"),
                        HasSubstr("one writes memory that the other uses"))));
}

}  // namespace
}  // namespace lockstep::fake_nccl
