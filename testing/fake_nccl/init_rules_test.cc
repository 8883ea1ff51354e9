// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "testing/fake_nccl/rank_set.h"
#include "testing/fake_nccl/simulated_nccl.h"

namespace lockstep::fake_nccl {
namespace {

using comm::nccl::Config;
using comm::nccl::UniqueId;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const bool kDevicesInUse = use_in_tests();

UniqueId new_id() {
  UniqueId id = {};
  simulated_nccl().get_unique_id(&id);
  return id;
}

Config non_blocking() {
  Config config;
  config.blocking = 0;
  return config;
}

// One rank's init on a device. What comes up is aborted at the end of the test.
class InitRulesTest : public ::testing::Test {
 protected:
  Result init(int ranks, const UniqueId& id, int rank, int device, Config config = non_blocking()) {
    const c10::DeviceGuard current(simdev::device(device));
    CommHandle made = nullptr;
    const Result result = simulated_nccl().comm_init_rank_config(&made, ranks, id, rank, &config);
    if (made != nullptr) {
      comms_.push_back(made);
    }
    return result;
  }
  void TearDown() override {
    for (CommHandle comm : comms_) {
      simulated_nccl().comm_abort(comm);
    }
    EXPECT_THAT(live_communicators(), IsEmpty());
  }

  std::vector<CommHandle> comms_;
};

TEST_F(InitRulesTest, RanksComeUpOneByOne) {
  const UniqueId id = new_id();
  EXPECT_EQ(init(2, id, 0, 0), Result::kInProgress);
  EXPECT_EQ(init(2, id, 1, 1), Result::kInProgress);
  EXPECT_EQ(simulated_nccl().comm_get_async_error(comms_[0], nullptr), Result::kInvalidArgument);
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("expected a place for the error, got null")));
  Result first = Result::kSuccess;
  simulated_nccl().comm_get_async_error(comms_[0], &first);
  EXPECT_EQ(first, Result::kInProgress);
  EXPECT_EQ(wait(comms_[1]), Result::kSuccess);
  EXPECT_EQ(wait(comms_[0]), Result::kSuccess);
}

TEST_F(InitRulesTest, RankAndNumberOfRanksFit) {
  EXPECT_EQ(init(2, new_id(), 2, 0), Result::kInvalidArgument);
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("expected a rank below the number of ranks, "
                                                    "got rank 2 of 2")));
  const UniqueId id = new_id();
  init(2, id, 0, 0);
  EXPECT_EQ(init(3, id, 1, 1), Result::kInvalidArgument);
  EXPECT_THAT(take_reports(), ElementsAre(AllOf(HasSubstr("init of rank 1 (device 1)"),
                                                HasSubstr("expected 2 ranks, as rank 0 said, got "
                                                          "3"))));
}

TEST_F(InitRulesTest, ARankIsInitialisedOnce) {
  const UniqueId id = new_id();
  init(2, id, 0, 0);
  EXPECT_EQ(init(2, id, 0, 1), Result::kInvalidUsage);
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("the rank was initialised before")));
}

TEST_F(InitRulesTest, AnIdIsUsedOnce) {
  const UniqueId id = new_id();
  init(1, id, 0, 0);
  EXPECT_EQ(wait(comms_[0]), Result::kSuccess);
  EXPECT_EQ(init(1, id, 0, 0), Result::kInvalidUsage);
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("the unique id was used")));
  EXPECT_EQ(init(1, new_id(), 0, 0), Result::kInProgress);
}

TEST_F(InitRulesTest, AnIdComesFromTheLibrary) {
  EXPECT_EQ(init(1, UniqueId{}, 0, 0), Result::kInvalidArgument);
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("expected a unique id of get_unique_id")));
  EXPECT_EQ(simulated_nccl().get_unique_id(nullptr), Result::kInvalidArgument);
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("get_unique_id: expected a place")));
}

TEST_F(InitRulesTest, EachRanksDeviceIsCurrent) {
  const UniqueId id = new_id();
  init(2, id, 0, 3);
  EXPECT_EQ(init(2, id, 1, 3), Result::kInvalidUsage);
  EXPECT_THAT(take_reports(), ElementsAre(AllOf(HasSubstr("ranks 0 and 1 are both on device 3"),
                                                HasSubstr("device current"))));
}

TEST_F(InitRulesTest, TheConfigIsInitialised) {
  Config config = non_blocking();
  config.magic = 0;
  EXPECT_EQ(init(1, new_id(), 0, 0, config), Result::kInvalidArgument);
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("expected a config that begins with")));
  config = non_blocking();
  config.version = 1;
  EXPECT_EQ(init(1, new_id(), 0, 0, config), Result::kInvalidArgument);
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("expected a config of version 22800")));
  config = non_blocking();
  config.blocking = 7;
  EXPECT_EQ(init(1, new_id(), 0, 0, config), Result::kInvalidArgument);
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("expected blocking 0 or 1, got 7")));
}

TEST_F(InitRulesTest, InitsAndCollectivesAreInGroupsOfTheirOwn) {
  const RankSet ranks(2);
  const auto memory = on_devices(2, [](int) { return at::ones({4}); });
  simulated_nccl().group_start();
  const UniqueId id = new_id();
  init(1, id, 0, 2, Config());
  for (int rank = 0; rank < 2; ++rank) {
    all_reduce(ranks, rank, memory[rank], memory[rank]);
  }
  EXPECT_EQ(simulated_nccl().group_end(), Result::kInvalidUsage);
  EXPECT_THAT(take_reports(), ElementsAre(AllOf(HasSubstr("one group holds the init of rank 0"),
                                                HasSubstr("all_reduce of 4 float32"))));
}

TEST_F(InitRulesTest, InitAllTakesDistinctDevicesThatAreThere) {
  std::array<CommHandle, 2> comms = {};
  const std::array<int, 2> twice = {1, 1}, absent = {0, 9}, good = {2, 1};
  EXPECT_EQ(simulated_nccl().comm_init_all(comms.data(), 2, twice.data()), Result::kInvalidUsage);
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("ranks 0 and 1 are both on device 1")));
  EXPECT_EQ(simulated_nccl().comm_init_all(comms.data(), 2, absent.data()),
            Result::kInvalidArgument);
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("got 9 at position 1")));
  EXPECT_EQ(simulated_nccl().comm_init_all(comms.data(), 99, nullptr), Result::kInvalidArgument);
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("1 to 4 communicators, got one for 99")));
  EXPECT_THAT(live_communicators(), IsEmpty());

  EXPECT_EQ(simulated_nccl().comm_init_all(comms.data(), 2, good.data()), Result::kSuccess);
  comms_.assign(comms.begin(), comms.end());
  int ranks = 0, rank = 0, device = 0;
  simulated_nccl().comm_count(comms[1], &ranks);
  simulated_nccl().comm_user_rank(comms[1], &rank);
  simulated_nccl().comm_cu_device(comms[1], &device);
  EXPECT_THAT((std::array<int, 3>{ranks, rank, device}), ElementsAre(2, 1, 1));
}

TEST(HandleRulesTest, WhatIsDestroyedOrAbortedIsNotUsed) {
  RankSet ranks(2);
  const CommHandle destroyed = ranks.release(0), aborted = ranks.release(1);
  EXPECT_EQ(simulated_nccl().comm_destroy(destroyed), Result::kSuccess);
  EXPECT_EQ(simulated_nccl().comm_abort(aborted), Result::kSuccess);
  EXPECT_THAT(take_reports(), IsEmpty());

  int count = 0;
  EXPECT_EQ(simulated_nccl().comm_count(destroyed, &count), Result::kInvalidArgument);
  EXPECT_EQ(simulated_nccl().comm_destroy(destroyed), Result::kInvalidArgument);
  EXPECT_EQ(simulated_nccl().comm_abort(aborted), Result::kInvalidArgument);
  EXPECT_THAT(take_reports(),
              ElementsAre(AllOf(HasSubstr("rank 0 (device 0)"), HasSubstr("comm_count: it was "
                                                                          "destroyed before")),
                          HasSubstr("comm_destroy: it was destroyed before"),
                          AllOf(HasSubstr("rank 1 (device 1)"),
                                HasSubstr("comm_abort: it was aborted before"))));
}

TEST(HandleRulesTest, NullIsTakenOnlyByWhatEndsACommunicator) {
  EXPECT_EQ(simulated_nccl().comm_destroy(nullptr), Result::kSuccess);
  EXPECT_EQ(simulated_nccl().comm_abort(nullptr), Result::kSuccess);
  EXPECT_EQ(simulated_nccl().comm_finalize(nullptr), Result::kSuccess);
  EXPECT_THAT(take_reports(), IsEmpty());
  int count = 0;
  EXPECT_EQ(simulated_nccl().comm_count(nullptr, &count), Result::kInvalidArgument);
  EXPECT_EQ(simulated_nccl().all_gather(nullptr, nullptr, 0, DataType::kInt8, nullptr, nullptr),
            Result::kInvalidArgument);
  EXPECT_THAT(take_reports(),
              ElementsAre(HasSubstr("comm_count: expected a communicator, got null"),
                          HasSubstr("all_gather: expected a communicator, got null")));
}

TEST(HandleRulesTest, AHandleComesFromInit) {
  int value = 0;
  EXPECT_EQ(simulated_nccl().comm_user_rank(reinterpret_cast<CommHandle>(&value), &value),
            Result::kInvalidArgument);
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("got what init never made")));
}

TEST(HandleRulesTest, WhatIsFinalizedTakesNoCalls) {
  const RankSet ranks(1, Mode::kNonBlocking);
  const at::Tensor memory = at::ones({4}, simdev::device(0));
  EXPECT_EQ(simulated_nccl().comm_finalize(ranks[0]), Result::kInProgress);
  EXPECT_EQ(wait(ranks[0]), Result::kSuccess);
  EXPECT_THAT(take_reports(), IsEmpty());
  EXPECT_EQ(all_reduce(ranks, 0, memory, memory), Result::kInvalidArgument);
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("all_reduce: it was finalized before")));
  EXPECT_EQ(simulated_nccl().comm_finalize(ranks[0]), Result::kInvalidArgument);
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("comm_finalize: it was finalized before")));
}

TEST(HandleRulesTest, WhatIsInProgressIsNotDestroyed) {
  RankSet ranks(1, Mode::kNonBlocking);
  const at::Tensor memory = at::ones({4}, simdev::device(0));
  EXPECT_EQ(all_reduce(ranks, 0, memory, memory), Result::kInProgress);
  simulated_nccl().comm_destroy(ranks.release(0));
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("comm_destroy: the call before it is still "
                                                    "in progress")));
}

TEST(HandleRulesTest, WhatHasCallsInAnOpenGroupIsNotDestroyed) {
  RankSet ranks(1);
  const at::Tensor memory = at::ones({4}, simdev::device(0));
  simulated_nccl().group_start();
  all_reduce(ranks, 0, memory, memory);
  simulated_nccl().comm_destroy(ranks.release(0));
  EXPECT_EQ(simulated_nccl().group_end(), Result::kSuccess);
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("comm_destroy: the open group")));
}

TEST(LiveCommunicatorsTest, AreListedByRankAndName) {
  EXPECT_THAT(live_communicators(), IsEmpty());
  Config config;
  config.comm_name = "pairs";
  CommHandle comm = nullptr;
  ASSERT_EQ(simulated_nccl().comm_init_rank_config(&comm, 1, new_id(), 0, &config),
            Result::kSuccess);
  EXPECT_THAT(
      live_communicators(),
      ElementsAre(AllOf(HasSubstr("rank 0 (device 0) of communicator"), HasSubstr("'pairs'"))));
  EXPECT_EQ(counters().comms_live, 1);
  simulated_nccl().comm_destroy(comm);
  EXPECT_THAT(live_communicators(), IsEmpty());
}

}  // namespace
}  // namespace lockstep::fake_nccl
