// SPDX-License-Identifier: Apache-2.0
#include "parallel/spin_wait.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace lockstep::parallel::internal {
namespace {

TEST(SpinWaitTest, CountsFromZero) {
  SpinWait wait;
  EXPECT_EQ(wait.value(), 0u);
  wait.advance();
  wait.advance();
  EXPECT_EQ(wait.value(), 2u);
}

TEST(SpinWaitTest, ReturnsAtOnceWhenTheValueHasMovedOn) {
  SpinWait wait;
  wait.advance();
  wait.wait_while(0);
  wait.wait_while(7);
  EXPECT_EQ(wait.value(), 1u);
}

TEST(SpinWaitTest, ShowsWhatWasWrittenBeforeTheAdvance) {
  // Two threads hand a plain counter to and fro; each turn may find the other spinning or asleep.
  constexpr uint32_t kTurns = 20000;
  SpinWait ping;
  SpinWait pong;
  uint64_t counter = 0;
  std::thread other([&] {
    for (uint32_t turn = 0; turn < kTurns; ++turn) {
      ping.wait_while(turn);
      ++counter;
      pong.advance();
    }
  });
  for (uint32_t turn = 0; turn < kTurns; ++turn) {
    ++counter;
    ping.advance();
    pong.wait_while(turn);
  }
  other.join();
  EXPECT_EQ(counter, uint64_t{2} * kTurns);
}

TEST(SpinWaitTest, WakesEveryWaiter) {
  // More waiters than any machine of ours has cores, so that most of them sleep.
  SpinWait wait;
  std::atomic<int> woken{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 32; ++i) {
    threads.emplace_back([&] {
      wait.wait_while(0);
      ++woken;
    });
  }
  wait.advance();
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(woken, 32);
}

TEST(BarrierTest, LetsNobodyPassBeforeAllHaveArrived) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 2000;
  Barrier barrier(kThreads);
  std::atomic<int64_t> arrivals{0};
  std::atomic<bool> early{false};
  const auto run = [&] {
    for (int round = 1; round <= kRounds; ++round) {
      ++arrivals;
      barrier.arrive_and_wait();
      if (arrivals < int64_t{round} * kThreads) {
        early = true;
      }
      barrier.arrive_and_wait();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < kThreads; ++i) {
    threads.emplace_back(run);
  }
  run();
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_FALSE(early);
  EXPECT_EQ(arrivals, int64_t{kThreads} * kRounds);
}

TEST(BarrierTest, OfOneIsPassedAtOnce) {
  Barrier barrier(1);
  barrier.arrive_and_wait();
  barrier.arrive_and_wait();
}

}  // namespace
}  // namespace lockstep::parallel::internal
