// SPDX-License-Identifier: Apache-2.0
// communicator_for(): one communicator for a list, and what happens to it at exit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/errors.h"
#include "comm/nccl/nccl_communicator.h"
#include "comm/nccl/scripted_nccl_fixture.h"
#include "testing/matchers.h"
#include "testing/simdev/test_environment.h"

namespace lockstep::comm::nccl {
namespace {

using ::lockstep::testing::ThrowsError;
using ::testing::Contains;
using ::testing::Not;
using ::testing::StartsWith;

const bool kDevicesInUse = simdev::use_in_tests();

std::shared_ptr<NcclCommunicator> get(const std::vector<int>& indices) {
  return communicator_for(scripted_nccl(), simdev::devices(indices));
}

class CommunicatorForTest : public ::testing::Test {
 protected:
  void SetUp() override { set_nccl_script({}); }
  void TearDown() override {
    close_communicators();
    EXPECT_THAT(nccl_log(), Not(Contains(StartsWith("wrong: "))));
    EXPECT_EQ(live_nccl_ranks(), 0);
  }
};

TEST_F(CommunicatorForTest, MakesOneForEachOrderedListAndTable) {
  const auto first = get({0, 1});
  EXPECT_EQ(get({0, 1}), first);
  EXPECT_NE(get({1, 0}), first);
  EXPECT_NE(get({0}), first);
  EXPECT_EQ(live_nccl_ranks(), 5);
  const NcclApi other_table = scripted_nccl();
  const auto other = communicator_for(other_table, simdev::devices({0, 1}));
  EXPECT_NE(other, first);
  close_communicators();
  EXPECT_FALSE(first->is_open());
  EXPECT_FALSE(other->is_open());
}

TEST_F(CommunicatorForTest, MakesAnotherForOneThatHasEnded) {
  const auto first = get({0, 1});
  first->close();
  const auto second = get({0, 1});
  EXPECT_NE(second, first);
  second->abort();
  const auto third = get({0, 1});
  EXPECT_NE(third, second);
  EXPECT_TRUE(third->is_open());
  EXPECT_EQ(get({0, 1}), third);
}

TEST_F(CommunicatorForTest, KeepsNothingOfOneThatDidNotComeUp) {
  NcclScript script;
  script.init_refused = {{1, Result::kSystemError}};
  set_nccl_script(script);
  EXPECT_THROW(get({0, 1}), NcclError);
  set_nccl_script({});
  EXPECT_TRUE(get({0, 1})->is_open());
}

TEST_F(CommunicatorForTest, GivesThreadsThatAskAtOnceTheSame) {
  NcclScript script;
  script.polls = {{0, 300}, {1, 300}};
  set_nccl_script(script);
  std::vector<std::shared_ptr<NcclCommunicator>> got(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < got.size(); ++i) {
    threads.emplace_back([&got, i] { got[i] = i % 2 == 0 ? get({0, 1}) : get({2, 3}); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (size_t i = 2; i < got.size(); ++i) {
    EXPECT_EQ(got[i], got[i - 2]);
  }
  EXPECT_EQ(live_nccl_ranks(), 4);
}

TEST_F(CommunicatorForTest, ClosesAllEvenIfOneFails) {
  get({0, 1});
  get({2, 3});
  NcclScript script;
  script.destroy_refused = {{1, Result::kInternalError}};
  change_nccl_script(script);
  EXPECT_THAT([] { close_communicators(); },
              ThrowsError("[close] ncclCommDestroy failed: scripted error (result 3)"));
  EXPECT_EQ(live_nccl_ranks(), 0);
}

// The processes below end with ranks alive. What was registered first runs last.
void leave_ranks_open() {
  std::atexit([] { std::fprintf(stderr, "ranks left: %d\n", live_nccl_ranks()); });
  get({0, 1});
  get({1, 2});
}

TEST(CommunicatorExitDeathTest, ExitLeavesOpenCommunicatorsAlone) {
  const auto program = [] {
    leave_ranks_open();
    std::exit(0);
  };
  EXPECT_EXIT(program(), ::testing::ExitedWithCode(0), "ranks left: 4");
}

TEST(CommunicatorExitDeathTest, ExitDoesNotWaitForALaunchOfAnotherThread) {
  const auto program = [] {
    leave_ranks_open();
    NcclScript script;
    script.polls = {{0, -1}};
    change_nccl_script(script);
    std::thread([] {
      get({0, 1})->launch("stuck", [](const NcclApi& nccl, CommHandle comm, int) {
        return nccl.all_reduce(nullptr, nullptr, 0, DataType::kInt8, RedOp::kSum, comm, nullptr);
      });
    }).detach();
    const auto in_launch = [] {
      const std::vector<std::string> log = nccl_log();
      return std::count(log.begin(), log.end(), "group_end") == 3;
    };
    while (!in_launch()) {
      std::this_thread::yield();
    }
    std::exit(0);
  };
  EXPECT_EXIT(program(), ::testing::ExitedWithCode(0), "ranks left: 4");
}

TEST(CommunicatorExitDeathTest, AnUncaughtExceptionEndsAtOnce) {
  const auto program = [] {
    leave_ranks_open();
    std::thread([] { throw std::runtime_error("nobody catches this"); }).join();
  };
  EXPECT_EXIT(program(), ::testing::KilledBySignal(SIGABRT), "nobody catches this");
}

}  // namespace
}  // namespace lockstep::comm::nccl
