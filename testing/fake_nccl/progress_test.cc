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

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const bool kDevicesInUse = use_in_tests();

Result ask(CommHandle comm) {
  Result state = Result::kInternalError;
  EXPECT_EQ(simulated_nccl().comm_get_async_error(comm, &state), Result::kSuccess);
  return state;
}

std::vector<at::Tensor> ones(int ranks) {
  return on_devices(ranks, [](int) { return at::ones({4}); });
}

float first(const at::Tensor& tensor) { return tensor[0].item<float>(); }

TEST(NonBlockingTest, AnswersInProgressAsOftenAsAskedFor) {
  const RankSet ranks(2, Mode::kNonBlocking);
  const auto memory = ones(2);
  set_polls(3);
  EXPECT_EQ(
      grouped(2, [&](int rank) { return all_reduce(ranks, rank, memory[rank], memory[rank]); }),
      Result::kInProgress);
  EXPECT_EQ(ask(ranks[0]), Result::kInProgress);
  EXPECT_EQ(ask(ranks[1]), Result::kInProgress);
  EXPECT_EQ(first(memory[0]), 1);
  EXPECT_EQ(ask(ranks[1]), Result::kSuccess);
  EXPECT_EQ(ask(ranks[0]), Result::kSuccess);
  EXPECT_EQ(first(memory[0]), 2);
}

TEST(NonBlockingTest, MayBeDoneAtOnce) {
  const RankSet ranks(1, Mode::kNonBlocking);
  const auto memory = ones(1);
  set_polls(0);
  EXPECT_EQ(all_reduce(ranks, 0, memory[0], memory[0]), Result::kSuccess);
}

TEST(NonBlockingTest, TakesNoCallWhileInProgress) {
  const RankSet ranks(1, Mode::kNonBlocking);
  const auto memory = ones(1);
  int count = 0;
  EXPECT_EQ(all_reduce(ranks, 0, memory[0], memory[0]), Result::kInProgress);
  EXPECT_EQ(simulated_nccl().comm_count(ranks[0], &count), Result::kInvalidArgument);
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("comm_count: the call before it is still in "
                                                    "progress; ask comm_get_async_error")));
  EXPECT_EQ(wait(ranks[0]), Result::kSuccess);
  EXPECT_EQ(simulated_nccl().comm_count(ranks[0], &count), Result::kSuccess);
}

TEST(NonBlockingTest, KeepsItsError) {
  const RankSet ranks(1, Mode::kNonBlocking);
  const auto memory = ones(1);
  EXPECT_EQ(broadcast(ranks, 0, memory[0], memory[0], 5), Result::kInvalidArgument);
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("expected a root below 1")));
  EXPECT_EQ(ask(ranks[0]), Result::kInvalidArgument);
  EXPECT_EQ(broadcast(ranks, 0, memory[0], memory[0], 0), Result::kInvalidArgument);
  EXPECT_THAT(simulated_nccl().get_last_error(ranks[0]), HasSubstr("has met an error before"));
}

TEST(BlockingTest, LivesOnAfterARefusedCall) {
  const RankSet ranks(1);
  const auto memory = ones(1);
  EXPECT_EQ(broadcast(ranks, 0, memory[0], memory[0], 5), Result::kInvalidArgument);
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("expected a root below 1")));
  EXPECT_EQ(broadcast(ranks, 0, memory[0], memory[0], 0), Result::kSuccess);
}

// Returns once a call of another thread waits for its peers.
void wait_for_call() {
  while (counters().calls == 0) {
    std::this_thread::yield();
  }
}

TEST(AbortTest, OfAPeerReleasesWhoWaits) {
  RankSet ranks(2);
  const auto memory = ones(2);
  Result released = Result::kSuccess;
  std::thread thread([&] { released = all_reduce(ranks, 0, memory[0], memory[0]); });
  wait_for_call();
  EXPECT_EQ(simulated_nccl().comm_abort(ranks.release(1)), Result::kSuccess);
  thread.join();
  EXPECT_EQ(released, Result::kRemoteError);
  EXPECT_EQ(first(memory[0]), 1);
}

TEST(AbortTest, OfTheCommunicatorReleasesItsCall) {
  RankSet ranks(2);
  const auto memory = ones(2);
  const CommHandle comm = ranks[0];
  Result released = Result::kSuccess;
  std::thread thread([&] {
    released = simulated_nccl().all_reduce(memory[0].data_ptr(), memory[0].data_ptr(), 4,
                                           DataType::kFloat32, RedOp::kSum, comm, stream(0));
  });
  wait_for_call();
  EXPECT_EQ(simulated_nccl().comm_abort(ranks.release(0)), Result::kSuccess);
  thread.join();
  EXPECT_EQ(released, Result::kInternalError);
  // Rank 1 would wait for ever.
  EXPECT_EQ(all_reduce(ranks, 1, memory[1], memory[1]), Result::kRemoteError);
}

TEST(AbortTest, OfANonBlockingOneInProgressBreaksNoRule) {
  RankSet ranks(2, Mode::kNonBlocking);
  const auto memory = ones(2);
  set_polls(100);
  grouped(2, [&](int rank) { return all_reduce(ranks, rank, memory[rank], memory[rank]); });
  EXPECT_EQ(simulated_nccl().comm_abort(ranks.release(0)), Result::kSuccess);
  EXPECT_EQ(simulated_nccl().comm_abort(ranks.release(1)), Result::kSuccess);
  EXPECT_THAT(live_communicators(), IsEmpty());
}

TEST(AbortTest, TakesItsCallsOutOfTheOpenGroup) {
  RankSet ranks(1);
  const auto memory = ones(1);
  simulated_nccl().group_start();
  all_reduce(ranks, 0, memory[0], memory[0]);
  simulated_nccl().comm_abort(ranks.release(0));
  EXPECT_EQ(simulated_nccl().group_end(), Result::kSuccess);
  EXPECT_EQ(counters().calls, 0);
}

}  // namespace
}  // namespace lockstep::fake_nccl
