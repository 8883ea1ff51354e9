// SPDX-License-Identifier: Apache-2.0
// How an NcclCommunicator comes up, or does not.
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/errors.h"
#include "comm/nccl/nccl_api.h"
#include "comm/nccl/nccl_communicator.h"
#include "comm/nccl/scripted_nccl_fixture.h"
#include "testing/matchers.h"
#include "testing/simdev/test_environment.h"

namespace lockstep::comm::nccl {
namespace {

using ::lockstep::testing::ThrowsError;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const bool kDevicesInUse = simdev::use_in_tests();

CommunicatorOptions patience(int milliseconds) {
  CommunicatorOptions options;
  options.timeout = std::chrono::milliseconds(milliseconds);
  return options;
}

// The error of making ranks on the devices by the script.
template <class Error>
Error failure(const NcclScript& script, const std::vector<int>& indices, int milliseconds = 60000) {
  set_nccl_script(script);
  try {
    const NcclCommunicator made(scripted_nccl(), simdev::devices(indices), patience(milliseconds));
  } catch (const Error& error) {
    return error;
  }
  throw std::logic_error("the communicator came up");
}

class CommunicatorInitTest : public ::testing::Test {
 protected:
  // Every failure ends what was made, by the rules, and a later try works.
  void TearDown() override {
    EXPECT_THAT(nccl_log(), Not(Contains(StartsWith("wrong: "))));
    EXPECT_EQ(live_nccl_ranks(), 0);
    EXPECT_EQ(open_nccl_groups(), 0);
    EXPECT_EQ(scripted_nccl().group_end(), Result::kInvalidUsage);
    set_nccl_script({});
    EXPECT_TRUE(NcclCommunicator(scripted_nccl(), simdev::devices({0, 1, 2})).is_open());
  }
};

TEST_F(CommunicatorInitTest, MakesAllRanksInOneGroupEachOnItsDevice) {
  set_nccl_script({});
  const c10::DeviceGuard current(simdev::device(3));
  const NcclCommunicator made(scripted_nccl(), simdev::devices({2, 0, 1}));
  EXPECT_THAT(nccl_log(),
              ElementsAre("group_start", "init 0 on 2", "init 1 on 0", "init 2 on 1", "group_end"));
  EXPECT_TRUE(made.is_open());
  EXPECT_EQ(made.devices(), simdev::devices({2, 0, 1}));
  EXPECT_EQ(c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1).getDevice(),
            simdev::device(3));
}

TEST_F(CommunicatorInitTest, WaitsForRanksThatAreInProgress) {
  NcclScript script;
  script.polls = {{0, 3}, {2, 300}};
  set_nccl_script(script);
  NcclCommunicator made(scripted_nccl(), simdev::devices({0, 1, 2}));
  made.close();
  EXPECT_THAT(nccl_log(), Contains("destroy 2"));
}

TEST_F(CommunicatorInitTest, NamesTheRankThatIsRefusedAndEndsTheOthers) {
  NcclScript script;
  script.init_refused = {{1, Result::kSystemError}};
  const auto error = failure<NcclError>(script, {0, 3, 2});
  EXPECT_THAT(error.what_without_backtrace(),
              HasSubstr("[NcclCommunicator] ncclCommInitRankConfig failed: scripted error (result "
                        "2); NCCL's last message: scripted message (rank 1, device simdev:3)"));
  EXPECT_EQ(error.rank(), 1);
  EXPECT_EQ(error.device(), simdev::device(3));
  EXPECT_THAT(nccl_log(), Contains("abort 0"));
  EXPECT_THAT(nccl_log(), Not(Contains("init 2 on 2")));
}

TEST_F(CommunicatorInitTest, RunningOutOfMemoryIsAnErrorOfTheRank) {
  NcclScript script;
  script.init_refused = {{0, Result::kUnhandledCudaError}};
  script.last_error = "Cuda failure 2 'out of memory'";
  const auto error = failure<NcclError>(script, {1, 2});
  EXPECT_THAT(error.what_without_backtrace(),
              HasSubstr("(result 1); NCCL's last message: Cuda failure 2 'out of memory' (rank 0, "
                        "device simdev:1)"));
}

TEST_F(CommunicatorInitTest, EndsTheGroupThatARefusedInitLeavesOpen) {
  NcclScript script;
  script.init_refused = {{2, Result::kInternalError}};
  script.leaks_group_level = true;
  EXPECT_EQ(failure<NcclError>(script, {0, 1, 2}).rank(), 2);
  // The aborts are noted as wrong if a group is open then.
  EXPECT_THAT(nccl_log(), Contains("abort 1"));
}

TEST_F(CommunicatorInitTest, LeavesAGroupOfTheCallerAsItWas) {
  set_nccl_script({});
  ASSERT_EQ(scripted_nccl().group_start(), Result::kSuccess);
  NcclScript script;
  script.init_refused = {{0, Result::kInternalError}};
  script.leaks_group_level = true;
  EXPECT_EQ(failure<NcclError>(script, {0, 1}).rank(), 0);
  EXPECT_EQ(open_nccl_groups(), 1);
  EXPECT_EQ(scripted_nccl().group_end(), Result::kSuccess);
}

TEST_F(CommunicatorInitTest, NamesTheRankThatFailsWhileItComesUp) {
  NcclScript script;
  script.polls = {{0, -1}, {1, -1}};  // they wait for the third
  script.async_error = {{2, Result::kInternalError}};
  const auto error = failure<NcclError>(script, {0, 1, 2});
  EXPECT_THAT(error.what_without_backtrace(),
              HasSubstr("[NcclCommunicator] a rank failed: scripted error (result 3); NCCL's last "
                        "message: scripted message (rank 2, device simdev:2)"));
  EXPECT_THAT(nccl_log(), Contains("abort 0"));
}

TEST_F(CommunicatorInitTest, NamesTheCauseRatherThanThePeersThatNoticed) {
  NcclScript script;
  script.async_error = {{0, Result::kRemoteError}, {1, Result::kSystemError}};
  EXPECT_EQ(failure<NcclError>(script, {0, 1, 2}).rank(), 1);
  script.async_error = {{1, Result::kRemoteError}, {2, Result::kRemoteError}};
  EXPECT_EQ(failure<NcclError>(script, {0, 1, 2}).rank(), 1);
}

TEST_F(CommunicatorInitTest, NamesTheRanksThatDoNotComeUpInTime) {
  NcclScript script;
  script.polls = {{0, -1}, {2, -1}};
  const auto error = failure<TimeoutError>(script, {0, 1, 2}, /*milliseconds=*/20);
  EXPECT_THAT(error.what_without_backtrace(),
              HasSubstr("[NcclCommunicator] NCCL was not done within 20 ms for ranks 0 (simdev:0), "
                        "2 (simdev:2) of 3"));
  EXPECT_EQ(error.rank(), 0);
  script.polls = {{1, -1}};
  EXPECT_THAT(failure<TimeoutError>(script, {0, 1}, 0).what_without_backtrace(),
              HasSubstr("not done within 0 ms for rank 1 (simdev:1) of 2"));
}

TEST_F(CommunicatorInitTest, SaysWhatNcclRefusedBesidesARank) {
  NcclScript script;
  script.unique_id = Result::kSystemError;
  EXPECT_THAT(failure<NcclError>(script, {0, 1}).what_without_backtrace(),
              HasSubstr("ncclGetUniqueId failed: scripted error (result 2)"));
  script.unique_id = Result::kSuccess;
  script.group_start = Result::kInternalError;
  EXPECT_THAT(failure<NcclError>(script, {0, 1}).what_without_backtrace(),
              HasSubstr("ncclGroupStart failed: scripted error (result 3)"));
  script.group_start = Result::kSuccess;
  script.group_end = Result::kSystemError;
  const auto error = failure<NcclError>(script, {0, 1});
  EXPECT_THAT(error.what_without_backtrace(),
              HasSubstr("ncclGroupEnd failed: scripted error (result 2)"));
  EXPECT_FALSE(error.rank().has_value());
}

TEST_F(CommunicatorInitTest, NamesTheRankThatAFailedGroupBlames) {
  NcclScript script;
  script.group_end = Result::kSystemError;
  script.async_error = {{1, Result::kSystemError}};
  const auto error = failure<NcclError>(script, {0, 1});
  EXPECT_THAT(error.what_without_backtrace(), HasSubstr("ncclGroupEnd failed"));
  EXPECT_EQ(error.rank(), 1);
}

void expect_refused(const std::vector<c10::Device>& list, const std::string& message) {
  EXPECT_THAT([&] { NcclCommunicator(scripted_nccl(), list); }, ThrowsError(message));
}

TEST_F(CommunicatorInitTest, RefusesListsThatAreNotDistinctAccelerators) {
  set_nccl_script({});
  expect_refused({}, "[NcclCommunicator] expected at least one device, got none");
  expect_refused(simdev::devices({1, 0, 1}),
                 "[NcclCommunicator] expected distinct devices, got simdev:1 at positions 0 and 2");
  expect_refused({c10::Device("cpu")},
                 "[NcclCommunicator] expected accelerators with an index, got cpu at position 0");
  expect_refused({c10::Device("cuda:0"), c10::Device("cuda")},
                 "[NcclCommunicator] expected accelerators with an index, got cuda at position 1");
  expect_refused({simdev::device(0), c10::Device("cuda:1")},
                 "[NcclCommunicator] expected devices of one type, got simdev:0 at position 0 and "
                 "cuda:1 at position 1");
  EXPECT_TRUE(nccl_log().empty());
}

TEST(RealNcclTest, WithoutADriverIsATypedErrorWithNcclsText) {
  if (void* const driver = dlopen("libcuda.so.1", RTLD_LAZY)) {
    dlclose(driver);
    GTEST_SKIP() << "this machine has a CUDA driver";
  }
  std::string reason;
  const NcclApi* const real = find_nccl(&reason);
  ASSERT_NE(real, nullptr) << reason;
  for (int round = 0; round < 2; ++round) {
    try {
      const NcclCommunicator made(*real, simdev::devices({1, 0}));
      ADD_FAILURE() << "a communicator without a driver";
    } catch (const NcclError& error) {
      EXPECT_THAT(
          error.what_without_backtrace(),
          HasSubstr("[NcclCommunicator] ncclCommInitRankConfig failed: unhandled cuda error (run "
                    "with NCCL_DEBUG=INFO for details) (result 1); NCCL's last message: "));
      EXPECT_THAT(error.what_without_backtrace(),
                  HasSubstr("CUDA driver version is insufficient for CUDA runtime version"));
      EXPECT_EQ(error.rank(), 0);
      EXPECT_EQ(error.device(), simdev::device(1));
    }
    EXPECT_EQ(real->group_end(), Result::kInvalidUsage) << "a group is still open";
  }
}

}  // namespace
}  // namespace lockstep::comm::nccl
