// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <vector>

#include "testing/fake_nccl/rank_set.h"
#include "testing/fake_nccl/simulated_nccl.h"

namespace lockstep::fake_nccl {
namespace {

using comm::nccl::Config;
using comm::nccl::UniqueId;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const bool kDevicesInUse = use_in_tests();

// Two non-blocking ranks come up, as far as they do.
class InitFaultsTest : public ::testing::Test {
 protected:
  Result init() {
    UniqueId id = {};
    simulated_nccl().get_unique_id(&id);
    Config config;
    config.blocking = 0;
    return grouped(2, [&](int rank) {
      const c10::DeviceGuard current(simdev::device(rank));
      answers_[rank] = simulated_nccl().comm_init_rank_config(&comms_[rank], 2, id, rank, &config);
      return answers_[rank];
    });
  }
  void TearDown() override {
    for (CommHandle comm : comms_) {
      simulated_nccl().comm_abort(comm);
    }
    EXPECT_THAT(take_reports(), IsEmpty());
    EXPECT_THAT(live_communicators(), IsEmpty());
  }

  std::array<CommHandle, 2> comms_ = {};
  std::array<Result, 2> answers_ = {};
};

TEST_F(InitFaultsTest, ARanksInitFails) {
  inject(kFakeInitFails, 1);
  EXPECT_EQ(init(), Result::kSystemError);
  EXPECT_THAT(answers_, ElementsAre(Result::kInProgress, Result::kSystemError));
  EXPECT_THAT(simulated_nccl().get_last_error(nullptr), HasSubstr("init of rank 1 failed"));
  EXPECT_EQ(comms_[1], nullptr);
  EXPECT_EQ(wait(comms_[0]), Result::kSystemError);
  EXPECT_EQ(open_groups(), 0);
}

TEST_F(InitFaultsTest, ARanksInitIsOutOfMemory) {
  inject(kFakeInitOutOfMemory, 0);
  EXPECT_EQ(init(), Result::kUnhandledCudaError);
  EXPECT_THAT(simulated_nccl().get_last_error(nullptr), HasSubstr("out of memory"));
}

TEST_F(InitFaultsTest, StrikeTheRankAtTheCallAskedFor) {
  inject(kFakeInitFails, kAnyRank, 1);
  init();
  EXPECT_THAT(answers_, ElementsAre(Result::kInProgress, Result::kSystemError));
}

TEST_F(InitFaultsTest, ARanksInitNeverArrives) {
  set_deadline(std::chrono::milliseconds(0));
  inject(kFakeInitNeverArrives, 1);
  EXPECT_EQ(init(), Result::kInProgress);
  for (int i = 0; i < 10; ++i) {
    for (CommHandle comm : comms_) {
      Result state = Result::kSuccess;
      simulated_nccl().comm_get_async_error(comm, &state);
      EXPECT_EQ(state, Result::kInProgress);
    }
  }
}

TEST_F(InitFaultsTest, WithoutADriverAGroupStaysOpen) {
  inject(kFakeNoDriver, 0);
  simulated_nccl().group_start();
  Config config;
  EXPECT_EQ(simulated_nccl().comm_init_rank_config(&comms_[0], 1, UniqueId{}, 0, &config),
            Result::kUnhandledCudaError);
  EXPECT_EQ(simulated_nccl().group_end(), Result::kSuccess);
  EXPECT_EQ(open_groups(), 1);
  EXPECT_EQ(simulated_nccl().group_end(), Result::kSuccess);
}

TEST_F(InitFaultsTest, OneMoreEndAfterAFailedInitIsForgiven) {
  inject(kFakeInitFails, 0);
  init();
  EXPECT_EQ(simulated_nccl().group_end(), Result::kInvalidUsage);
  EXPECT_THAT(take_reports(), IsEmpty());
  EXPECT_EQ(simulated_nccl().group_end(), Result::kInvalidUsage);
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("expected a group_start")));
}

class CallFaultsTest : public ::testing::Test {
 protected:
  Result call() {
    return grouped(
        2, [&](int rank) { return all_reduce(ranks_, rank, memory_[rank], memory_[rank]); });
  }
  Result wait_for_all() {
    const Result first = wait(ranks_[0]);
    return first == Result::kSuccess ? wait(ranks_[1]) : first;
  }

  RankSet ranks_{2, Mode::kNonBlocking};
  const std::vector<at::Tensor> memory_ = on_devices(2, [](int) { return at::ones({4}); });
};

TEST_F(CallFaultsTest, ACallFails) {
  inject(kFakeSystemError, 1, 1);
  EXPECT_EQ(call(), Result::kInProgress);
  EXPECT_EQ(wait_for_all(), Result::kSuccess);
  EXPECT_EQ(call(), Result::kSystemError);
  EXPECT_THAT(simulated_nccl().get_last_error(nullptr), HasSubstr("all_reduce of rank 1 failed"));
  EXPECT_EQ(wait_for_all(), Result::kSystemError);
}

TEST_F(CallFaultsTest, ACallIsOutOfMemory) {
  inject(kFakeOutOfMemory, 0);
  EXPECT_EQ(call(), Result::kUnhandledCudaError);
  EXPECT_THAT(simulated_nccl().get_last_error(nullptr), HasSubstr("rank 0: out of memory"));
}

TEST_F(CallFaultsTest, APeerIsGone) {
  inject(kFakeRemoteError, 1);
  EXPECT_EQ(call(), Result::kInProgress);
  EXPECT_EQ(wait_for_all(), Result::kRemoteError);
  EXPECT_THAT(simulated_nccl().get_last_error(nullptr), HasSubstr("a peer of rank 1 is gone"));
}

TEST_F(CallFaultsTest, ARankNeverArrives) {
  set_deadline(std::chrono::milliseconds(0));
  inject(kFakeRankNeverArrives, 1);
  EXPECT_EQ(call(), Result::kInProgress);
  for (int i = 0; i < 10; ++i) {
    for (int rank = 0; rank < 2; ++rank) {
      Result state = Result::kSuccess;
      simulated_nccl().comm_get_async_error(ranks_[rank], &state);
      EXPECT_EQ(state, Result::kInProgress);
    }
  }
  simulated_nccl().comm_abort(ranks_.release(0));
  simulated_nccl().comm_abort(ranks_.release(1));
}

TEST(BlockingFaultsTest, ARankThatNeverArrivesIsNoDeadlockOfTheCallers) {
  const RankSet ranks(2);
  const auto memory = on_devices(2, [](int) { return at::ones({4}); });
  set_deadline(std::chrono::milliseconds(20));
  inject(kFakeRankNeverArrives, 1);
  const auto call = [&](int rank) { return all_reduce(ranks, rank, memory[rank], memory[rank]); };
  EXPECT_EQ(grouped(2, call), Result::kInternalError);
  EXPECT_THAT(simulated_nccl().get_last_error(nullptr), HasSubstr("deadlock"));
  EXPECT_THAT(take_reports(), IsEmpty());
}

}  // namespace
}  // namespace lockstep::fake_nccl
