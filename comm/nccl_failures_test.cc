// SPDX-License-Identifier: Apache-2.0
// What callers of NcclCollectives see when NCCL fails, and when many of them call at once.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "comm/errors.h"
#include "comm/nccl_collectives.h"
#include "comm/reduce_add.h"
#include "comm/reduce_add_coalesced.h"
#include "testing/fake_nccl/simulated_nccl.h"
#include "testing/matchers.h"
#include "testing/summands.h"

namespace lockstep::comm {
namespace {

using ::lockstep::fake_nccl::simulated_nccl;
using ::lockstep::testing::BitwiseEqual;
using ::lockstep::testing::random_on_each;
using ::lockstep::testing::successive_sum;
using ::testing::HasSubstr;

const bool kDevicesInUse = fake_nccl::use_in_tests({/*devices=*/3});

std::vector<at::Tensor> on_two_devices() {
  return random_on_each({simdev::device(0), simdev::device(1)}, {6});
}

TEST(NcclFailuresTest, ARefusedCallNamesTheRankAndTheNextOneWorks) {
  NcclCollectives engine(simulated_nccl());
  const std::vector<at::Tensor> x = on_two_devices();
  engine.broadcast(x[0], x[1]);
  fake_nccl::inject(kFakeSystemError, /*rank=*/1);
  try {
    engine.broadcast(x[0], x[1]);
    FAIL() << "nothing was thrown";
  } catch (const NcclError& error) {
    EXPECT_EQ(error.rank(), 1);
    EXPECT_EQ(error.device(), simdev::device(1));
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("broadcast"));
  }
  const at::Tensor sum = at::empty_like(x[0]);
  engine.reduce_add(x, sum);
  EXPECT_THAT(sum, BitwiseEqual(successive_sum(x)));
}

TEST(NcclFailuresTest, AMemberThatCannotBeMadeLeavesNothingBehind) {
  for (const FakeNcclFault fault : {kFakeInitFails, kFakeInitOutOfMemory}) {
    const std::vector<at::Tensor> x = random_on_each({simdev::device(2), simdev::device(0)}, {6});
    nccl::close_communicators();
    NcclCollectives engine(simulated_nccl());
    fake_nccl::inject(fault, /*rank=*/1);
    EXPECT_THROW(engine.broadcast(x[0], x[1]), NcclError);
    EXPECT_EQ(fake_nccl::counters().comms_live, 0);
    EXPECT_EQ(fake_nccl::open_groups(), 0);
    engine.broadcast(x[0], x[1]);
    EXPECT_THAT(x[1], BitwiseEqual(x[0].cpu()));
  }
}

TEST(NcclFailuresTest, AMemberThatNeverComesUpIsATimeout) {
  nccl::close_communicators();
  NcclCollectives engine(simulated_nccl(), {std::chrono::milliseconds(50)});
  const std::vector<at::Tensor> x = on_two_devices();
  fake_nccl::inject(kFakeInitNeverArrives, /*rank=*/1);
  EXPECT_THROW(engine.broadcast(x[0], x[1]), TimeoutError);
  EXPECT_EQ(fake_nccl::counters().comms_live, 0);
}

TEST(NcclFailuresTest, FourThreadsOnTheSameDevicesGetTheirOwnSums) {
  NcclCollectives engine(simulated_nccl());
  constexpr int kThreads = 4;
  constexpr int kRounds = 100;
  std::vector<int> right(kThreads, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&engine, &right, t] {
      const c10::Device first = simdev::device(t % 2);  // half of them list the devices backwards
      const c10::Device second = simdev::device(1 - t % 2);
      for (int round = 0; round < kRounds; ++round) {
        const at::Tensor source = at::full({16}, t + 1.0F, at::device(first));
        const at::Tensor copy = at::empty({16}, at::device(second));
        engine.broadcast(source, copy);
        const at::Tensor sum = at::empty_like(source);
        engine.reduce_add({source, copy}, sum);
        right[t] += at::equal(sum.cpu(), at::full({16}, 2.0F * (t + 1))) ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_THAT(right, ::testing::Each(kRounds));
  EXPECT_EQ(engine.nccl_calls(), 2 * kThreads * kRounds);
}

// Slices of one buffer, in several dtypes: packed into groups or one by one.
TEST(NcclFailuresTest, SumsInGroupsAreThoseOfSingleCalls) {
  NcclCollectives engine(simulated_nccl());
  std::vector<std::vector<at::Tensor>> rows;
  for (int device = 0; device < 2; ++device) {
    std::vector<at::Tensor>& row = rows.emplace_back();
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kLong}) {
      const at::Tensor whole =
          random_on_each({simdev::device(device)}, {40}, dtype)[0] * (device + 1);
      row.push_back(whole.slice(0, 1, 14));
      row.push_back(whole.slice(0, 14, 40));
    }
  }
  CoalesceOptions options;
  options.collectives = &engine;
  const std::vector<at::Tensor> sums = reduce_add_coalesced(rows, simdev::device(0), options);
  for (size_t t = 0; t < sums.size(); ++t) {
    const at::Tensor alone = reduce_add({rows[0][t], rows[1][t]}, simdev::device(0), {&engine});
    EXPECT_THAT(sums[t], BitwiseEqual(alone.cpu())) << t;
  }
  EXPECT_EQ(engine.nccl_calls(), 4 + 8);
}

void use_once() {
  static auto* const engine = new NcclCollectives(simulated_nccl());
  const std::vector<at::Tensor> x = on_two_devices();
  engine->broadcast(x[0], x[1]);
}

TEST(NcclExitDeathTest, AProcessEndsAsItWantsWithOpenCommunicators) {
  EXPECT_EXIT(
      {
        use_once();
        std::exit(7);
      },
      ::testing::ExitedWithCode(7), "");
  EXPECT_EXIT(
      {
        use_once();
        std::quick_exit(8);
      },
      ::testing::ExitedWithCode(8), "");
}

}  // namespace
}  // namespace lockstep::comm
