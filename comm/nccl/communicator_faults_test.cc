// SPDX-License-Identifier: Apache-2.0
// NcclCommunicator with a library that runs collectives on simulated devices, fails on request and
// reports each rule of NCCL that its caller breaks.
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "comm/errors.h"
#include "comm/nccl/nccl_communicator.h"
#include "testing/fake_nccl/simulated_nccl.h"
#include "testing/matchers.h"

namespace lockstep::comm::nccl {
namespace {

using ::lockstep::testing::BitwiseEqual;
using ::lockstep::testing::ThrowsError;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const bool kDevicesInUse = fake_nccl::use_in_tests();

std::vector<c10::Device> devices() {
  return {simdev::device(2), simdev::device(0), simdev::device(1)};
}

const NcclApi& nccl() { return fake_nccl::simulated_nccl(); }

CommunicatorOptions patience(int milliseconds) {
  CommunicatorOptions options;
  options.timeout = std::chrono::milliseconds(milliseconds);
  return options;
}

// The sum over ranks of (base + rank), taken by all ranks; what rank 0 holds then.
at::Tensor sum(NcclCommunicator& communicator, double base) {
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::PrivateUse1);
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;
  for (const c10::Device& device : communicator.devices()) {
    const double value = base + static_cast<double>(inputs.size());
    inputs.push_back(at::full({5}, value, at::kFloat).to(device));
    outputs.push_back(at::zeros_like(inputs.back()));
  }
  communicator.launch("sum", [&](const NcclApi& api, CommHandle comm, int rank) {
    const c10::Stream stream = guard.getStream(communicator.devices()[rank]);
    return api.all_reduce(inputs[rank].const_data_ptr(), outputs[rank].mutable_data_ptr(), 5,
                          DataType::kFloat32, RedOp::kSum, comm, stream.native_handle());
  });
  return outputs[0].cpu();
}

at::Tensor fives(double value) { return at::full({5}, value, at::kFloat); }

class CommunicatorFaultsTest : public ::testing::Test {
 protected:
  void TearDown() override {
    // Whatever went wrong, the next communicator works.
    const auto next = communicator_for(nccl(), devices());
    EXPECT_THAT(sum(*next, 1), BitwiseEqual(fives(6)));
    close_communicators();
    EXPECT_THAT(fake_nccl::live_communicators(), IsEmpty());
    EXPECT_EQ(fake_nccl::open_groups(), 0);
  }
  // The message with which making a communicator fails.
  template <class Error>
  std::string init_failure(FakeNcclFault fault, int rank, int milliseconds = 60000) {
    fake_nccl::inject(fault, rank);
    try {
      communicator_for(nccl(), devices(), patience(milliseconds));
    } catch (const Error& error) {
      EXPECT_THAT(fake_nccl::live_communicators(), IsEmpty());
      return error.what_without_backtrace();
    }
    return "it came up";
  }
  template <class Error>
  void expect_failed_launch(FakeNcclFault fault, const std::string& message) {
    const auto communicator = communicator_for(nccl(), devices(), patience(200));
    fake_nccl::inject(fault, /*rank=*/1);
    EXPECT_THROW(sum(*communicator, 1), Error);
    EXPECT_FALSE(communicator->is_open());
    EXPECT_THAT(fake_nccl::live_communicators(), IsEmpty());
    EXPECT_THAT([&] { sum(*communicator, 1); }, ThrowsError("was aborted: [sum] " + message));
  }
};

TEST_F(CommunicatorFaultsTest, SumsOverAllDevicesInOneLaunchForEach) {
  const auto communicator = communicator_for(nccl(), devices());
  fake_nccl::reset_counters();
  EXPECT_THAT(sum(*communicator, 1), BitwiseEqual(fives(6)));
  EXPECT_EQ(fake_nccl::counters().calls, 3);
  EXPECT_EQ(fake_nccl::counters().groups, 1);
  EXPECT_EQ(fake_nccl::counters().kernels, 3);
}

TEST_F(CommunicatorFaultsTest, AsksAgainUntilNcclIsDone) {
  fake_nccl::set_polls(400);
  const auto communicator = communicator_for(nccl(), devices());
  EXPECT_THAT(sum(*communicator, 2), BitwiseEqual(fives(9)));
  communicator->close();
}

TEST_F(CommunicatorFaultsTest, InitThatFailsForAnyRankIsATypedError) {
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(
        init_failure<NcclError>(kFakeInitFails, rank),
        HasSubstr("(rank " + std::to_string(rank) + ", device " + devices()[rank].str() + ")"));
  }
}

TEST_F(CommunicatorFaultsTest, InitThatRunsOutOfMemoryIsATypedError) {
  EXPECT_THAT(init_failure<NcclError>(kFakeInitOutOfMemory, 2), HasSubstr("out of memory"));
}

TEST_F(CommunicatorFaultsTest, InitWithoutADriverLeavesNoGroupOpen) {
  EXPECT_THAT(init_failure<NcclError>(kFakeNoDriver, 0),
              HasSubstr("there is no driver or no device (rank 0, device simdev:2)"));
  EXPECT_EQ(fake_nccl::open_groups(), 0);
  EXPECT_THAT(init_failure<NcclError>(kFakeNoDriver, 1), HasSubstr("(rank 1, device simdev:0)"));
  EXPECT_EQ(fake_nccl::open_groups(), 0);
}

TEST_F(CommunicatorFaultsTest, RankThatNeverComesUpIsATimeout) {
  EXPECT_THAT(init_failure<TimeoutError>(kFakeInitNeverArrives, 1, /*milliseconds=*/50),
              HasSubstr("[NcclCommunicator] NCCL was not done within 50 ms for ranks 0 (simdev:2), "
                        "1 (simdev:0), 2 (simdev:1) of 3"));
}

TEST_F(CommunicatorFaultsTest, LaunchThatNcclRefusesAbortsAll) {
  expect_failed_launch<NcclError>(kFakeSystemError, "a call of the group failed: ");
  expect_failed_launch<NcclError>(kFakeOutOfMemory, "a call of the group failed: ");
}

TEST_F(CommunicatorFaultsTest, LaunchThatARankNeverJoinsAbortsAll) {
  expect_failed_launch<TimeoutError>(kFakeRankNeverArrives, "NCCL was not done within 200 ms");
}

TEST_F(CommunicatorFaultsTest, RemoteErrorBetweenLaunchesAbortsAll) {
  const auto communicator = communicator_for(nccl(), devices());
  fake_nccl::inject(kFakeRemoteError, 2);
  EXPECT_THAT([&] { communicator->check_health("step"); },
              ThrowsError("(rank 2, device simdev:1)"));
  EXPECT_FALSE(communicator->is_open());
  EXPECT_THAT(fake_nccl::live_communicators(), IsEmpty());
}

TEST_F(CommunicatorFaultsTest, FourThreadsOnTheSameDevicesAllGetTheirSums) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      const auto communicator = communicator_for(nccl(), devices());
      for (int j = 0; j < 100; ++j) {
        EXPECT_THAT(sum(*communicator, i + j), BitwiseEqual(fives(3 * (i + j) + 3)));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(fake_nccl::counters().groups, 400);
}

}  // namespace
}  // namespace lockstep::comm::nccl
