// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/nccl_communicator.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/errors.h"
#include "comm/nccl/scripted_nccl_fixture.h"
#include "testing/matchers.h"
#include "testing/simdev/test_environment.h"
#include "testing/warnings.h"

namespace lockstep::comm::nccl {
namespace {

using ::lockstep::testing::ThrowsError;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

const bool kDevicesInUse = simdev::use_in_tests();

std::vector<c10::Device> three_devices() {
  return {simdev::device(0), simdev::device(2), simdev::device(1)};
}

Result all_reduce(const NcclApi& nccl, CommHandle comm, int /*rank*/) {
  return nccl.all_reduce(nullptr, nullptr, 0, DataType::kFloat32, RedOp::kSum, comm, nullptr);
}

CommunicatorOptions patience(int milliseconds) {
  CommunicatorOptions options;
  options.timeout = std::chrono::milliseconds(milliseconds);
  return options;
}

// A communicator of three ranks that is up, with an empty log.
class NcclCommunicatorTest : public ::testing::Test {
 protected:
  void SetUp() override { make(patience(60000)); }
  void make(const CommunicatorOptions& options) {
    set_nccl_script({});
    communicator_ = std::make_unique<NcclCommunicator>(scripted_nccl(), three_devices(), options);
    made_ = nccl_log().size();
  }

  void TearDown() override {
    communicator_.reset();
    EXPECT_THAT(nccl_log(), Not(Contains(StartsWith("wrong: "))));
    EXPECT_EQ(live_nccl_ranks(), 0);
    EXPECT_EQ(open_nccl_groups(), 0);
  }

  std::vector<std::string> log_since_made() {
    const std::vector<std::string> log = nccl_log();
    return {log.begin() + static_cast<int64_t>(made_), log.end()};
  }

  // What the launch threw. All ranks were aborted, and NCCL hears of no later call.
  template <class Error>
  Error failed_launch(const NcclScript& script, const NcclCommunicator::Call& call = all_reduce) {
    change_nccl_script(script);
    std::optional<Error> thrown;
    try {
      communicator_->launch("sum", call);
    } catch (const Error& error) {
      thrown = error;
    }
    TORCH_CHECK(thrown.has_value(), "the launch worked");
    EXPECT_EQ(live_nccl_ranks(), 0);
    EXPECT_EQ(open_nccl_groups(), 0);
    EXPECT_FALSE(communicator_->is_open());
    EXPECT_THAT(nccl_log(), Contains("abort 2"));
    const size_t asked = nccl_log().size();
    EXPECT_THAT([&] { communicator_->launch("next", all_reduce); },
                ThrowsError("[next] the communicator over simdev:0, simdev:2, simdev:1 was "
                            "aborted: "));
    EXPECT_THROW(communicator_->launch("next", all_reduce), NcclError);
    EXPECT_THROW(communicator_->check_health("next"), NcclError);
    communicator_->close();
    communicator_->abort();
    EXPECT_EQ(nccl_log().size(), asked);
    return *thrown;
  }

  std::unique_ptr<NcclCommunicator> communicator_;
  size_t made_ = 0;
};

TEST_F(NcclCommunicatorTest, LaunchCallsEveryRankInOneGroupOnItsDevice) {
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::PrivateUse1);
  guard.setDevice(simdev::device(3));
  communicator_->launch("sum", all_reduce);
  EXPECT_THAT(log_since_made(), ElementsAre("group_start", "all_reduce 0 on 0", "all_reduce 1 on 2",
                                            "all_reduce 2 on 1", "group_end"));
  EXPECT_EQ(guard.getDevice(), simdev::device(3));
}

TEST_F(NcclCommunicatorTest, LaunchWaitsUntilEveryRankIsTaken) {
  NcclScript script;
  script.polls = {{0, 1}, {1, 400}};
  change_nccl_script(script);
  for (int i = 0; i < 3; ++i) {
    communicator_->launch("sum", all_reduce);  // noted as wrong if the one before is under way
  }
  EXPECT_EQ(log_since_made().size(), 15U);
}

TEST_F(NcclCommunicatorTest, LaunchMayLeaveRanksOut) {
  communicator_->launch("send", [](const NcclApi& nccl, CommHandle comm, int rank) {
    return rank == 1 ? all_reduce(nccl, comm, rank) : Result::kSuccess;
  });
  EXPECT_THAT(log_since_made(), ElementsAre("group_start", "all_reduce 1 on 2", "group_end"));
  communicator_->launch("nothing",
                        [](const NcclApi&, CommHandle, int) { return Result::kSuccess; });
}

TEST_F(NcclCommunicatorTest, RefusedCallAbortsAllAndNamesItsRank) {
  const auto error =
      failed_launch<NcclError>({}, [](const NcclApi& nccl, CommHandle comm, int rank) {
        return rank == 1 ? Result::kInvalidArgument : all_reduce(nccl, comm, rank);
      });
  EXPECT_THAT(error.what_without_backtrace(),
              HasSubstr("[sum] a call of the group failed: scripted error (result 4); NCCL's last "
                        "message: scripted message (rank 1, device simdev:2)"));
  EXPECT_EQ(error.rank(), 1);
  EXPECT_THAT(log_since_made(), ElementsAre("group_start", "all_reduce 0 on 0", "group_end",
                                            "abort 0", "abort 1", "abort 2"));
}

TEST_F(NcclCommunicatorTest, RefusedGroupAbortsAll) {
  NcclScript script;
  script.group_end = Result::kInternalError;
  script.async_error = {{2, Result::kInternalError}};
  const auto error = failed_launch<NcclError>(script);
  EXPECT_THAT(error.what_without_backtrace(),
              HasSubstr("[sum] ncclGroupEnd failed: scripted error (result 3)"));
  EXPECT_EQ(error.rank(), 2);
}

TEST_F(NcclCommunicatorTest, RefusedGroupStartAbortsAll) {
  NcclScript script;
  script.group_start = Result::kInternalError;
  EXPECT_THAT(failed_launch<NcclError>(script).what_without_backtrace(),
              HasSubstr("[sum] ncclGroupStart failed"));
}

TEST_F(NcclCommunicatorTest, RankThatFailsInTheBackgroundAbortsAll) {
  NcclScript script;
  script.polls = {{0, -1}};
  script.async_error = {{1, Result::kRemoteError}};
  const auto error = failed_launch<NcclError>(script);
  EXPECT_THAT(error.what_without_backtrace(),
              HasSubstr("[sum] a rank failed: scripted error (result 6)"));
  EXPECT_EQ(error.device(), simdev::device(2));
}

TEST_F(NcclCommunicatorTest, LaunchThatIsNotTakenInTimeAbortsAll) {
  communicator_.reset();
  make(patience(20));
  NcclScript script;
  script.polls = {{0, -1}, {2, -1}};
  EXPECT_THAT(failed_launch<TimeoutError>(script).what_without_backtrace(),
              HasSubstr("[sum] NCCL was not done within 20 ms for ranks 0 (simdev:0), 2 (simdev:1) "
                        "of 3"));
}

TEST_F(NcclCommunicatorTest, ExceptionOfTheCallAbortsAllAndComesOut) {
  const auto error =
      failed_launch<std::out_of_range>({}, [](const NcclApi& nccl, CommHandle comm, int rank) {
        if (rank == 2) {
          throw std::out_of_range("no third tensor");
        }
        return all_reduce(nccl, comm, rank);
      });
  EXPECT_STREQ(error.what(), "no third tensor");
  EXPECT_THAT([&] { communicator_->launch("next", all_reduce); }, ThrowsError("no third tensor"));
}

TEST_F(NcclCommunicatorTest, RefusesALaunchWithinALaunch) {
  const auto error = failed_launch<c10::Error>({}, [this](const NcclApi&, CommHandle, int) {
    communicator_->launch("inner", all_reduce);
    return Result::kSuccess;
  });
  EXPECT_THAT(error.what_without_backtrace(),
              HasSubstr("[inner] expected to be called outside of a launch, got a call from within "
                        "one"));
}

TEST_F(NcclCommunicatorTest, CheckHealthThrowsWhatARankHasMetAndAbortsAll) {
  communicator_->check_health("step");
  EXPECT_TRUE(communicator_->is_open());
  NcclScript script;
  script.async_error = {{1, Result::kRemoteError}};
  change_nccl_script(script);
  EXPECT_THAT([&] { communicator_->check_health("step"); },
              ThrowsError("[step] a rank failed: scripted error (result 6); NCCL's last message: "
                          "scripted message (rank 1, device simdev:2)"));
  EXPECT_THAT(log_since_made(), ElementsAre("abort 0", "abort 1", "abort 2"));
  EXPECT_FALSE(communicator_->is_open());
}

TEST_F(NcclCommunicatorTest, CloseFinalizesAllBeforeItDestroysAny) {
  NcclScript script;
  script.polls = {{1, 300}};
  change_nccl_script(script);
  communicator_->close();
  EXPECT_THAT(log_since_made(), ElementsAre("group_start", "finalize 0", "finalize 1", "finalize 2",
                                            "group_end", "destroy 0", "destroy 1", "destroy 2"));
  EXPECT_FALSE(communicator_->is_open());
  communicator_->close();
  communicator_->abort();
  EXPECT_EQ(log_since_made().size(), 8U);
  EXPECT_THAT([&] { communicator_->launch("sum", all_reduce); },
              ThrowsError("[sum] expected an open communicator, got one that was closed, over "
                          "simdev:0, simdev:2, simdev:1"));
}

TEST_F(NcclCommunicatorTest, CloseThatFailsAbortsWhatIsLeft) {
  NcclScript script;
  script.async_error = {{1, Result::kSystemError}};
  change_nccl_script(script);
  EXPECT_THAT([&] { communicator_->close(); }, ThrowsError("[close] a rank failed"));
  EXPECT_THAT(log_since_made(), Contains("abort 1"));
}

TEST_F(NcclCommunicatorTest, CloseDestroysTheOthersIfOneIsRefused) {
  NcclScript script;
  script.destroy_refused = {{0, Result::kInternalError}};
  change_nccl_script(script);
  EXPECT_THAT([&] { communicator_->close(); },
              ThrowsError("[close] ncclCommDestroy failed: scripted error (result 3)"));
  EXPECT_THAT(log_since_made(), Contains("destroy 2"));
  EXPECT_THAT([&] { communicator_->launch("sum", all_reduce); }, ThrowsError("was aborted"));
}

TEST_F(NcclCommunicatorTest, DestructorClosesAndOnlyWarnsIfThatFails) {
  NcclScript script;
  script.destroy_refused = {{0, Result::kInternalError}};
  change_nccl_script(script);
  lockstep::testing::Warnings warnings;
  communicator_.reset();
  EXPECT_THAT(warnings.messages, ElementsAre(HasSubstr("[close] ncclCommDestroy failed")));
  EXPECT_THAT(log_since_made(), Contains("finalize 2"));
}

TEST_F(NcclCommunicatorTest, AbortEndsAllRanksAtOnce) {
  communicator_->abort();
  communicator_->abort();
  EXPECT_THAT(log_since_made(), ElementsAre("abort 0", "abort 1", "abort 2"));
  EXPECT_THAT([&] { communicator_->launch("sum", all_reduce); },
              ThrowsError("was aborted: abort() was called"));
}

TEST_F(NcclCommunicatorTest, AbortReleasesALaunchOfAnotherThread) {
  NcclScript script;
  script.polls = {{0, -1}};
  change_nccl_script(script);
  std::thread stuck([&] {
    EXPECT_THAT([&] { communicator_->launch("sum", all_reduce); },
                ThrowsError("[sum] stopped by an abort from another thread"));
  });
  while (log_since_made().size() < 5) {
    std::this_thread::yield();
  }
  communicator_->abort();
  EXPECT_FALSE(communicator_->is_open());
  stuck.join();
}

TEST_F(NcclCommunicatorTest, GroupsOfFourThreadsOnTheSameDevicesFollowOneAnother) {
  NcclScript script;
  script.polls = {{0, 2}, {1, 1}};
  change_nccl_script(script);
  NcclCommunicator other(scripted_nccl(), three_devices());
  made_ = nccl_log().size();
  constexpr int kThreads = 4;
  constexpr int kLaunches = 100;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int j = 0; j < kLaunches; ++j) {
        (i % 2 == 0 ? *communicator_ : other).launch("sum", all_reduce);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  const std::vector<std::string> one_group = {
      "group_start", "all_reduce 0 on 0", "all_reduce 1 on 2", "all_reduce 2 on 1", "group_end"};
  const std::vector<std::string> log = log_since_made();
  ASSERT_EQ(log.size(), kThreads * kLaunches * one_group.size());
  for (size_t i = 0; i < log.size(); ++i) {
    ASSERT_EQ(log[i], one_group[i % one_group.size()]) << "call " << i;
  }
  other.close();
}

}  // namespace
}  // namespace lockstep::comm::nccl
