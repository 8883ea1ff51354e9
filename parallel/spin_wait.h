// SPDX-License-Identifier: Apache-2.0
// spin_wait.h: a counter that threads wait on, spinning briefly before they sleep.
// Internal to parallel. Waking a sleeping thread costs 20 to 400 microseconds, a spinning one less
// than one; but a thread that spins while another needs the core is worse than either.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace lockstep::parallel::internal {

class SpinWait {
 public:
  uint32_t value() const { return value_.load(std::memory_order_acquire); }

  // Adds one and wakes every waiter. What was written before is visible to who sees the new value.
  void advance();

  // Returns once the value differs from `seen`.
  void wait_while(uint32_t seen);

 private:
  std::atomic<uint32_t> value_{0};
  std::atomic<uint32_t> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
};

// A point that `count` threads pass together, any number of times.
class Barrier {
 public:
  explicit Barrier(int64_t count) : count_(count) {}
  void arrive_and_wait();

 private:
  const int64_t count_;
  std::atomic<int64_t> arrived_{0};
  SpinWait generation_;
};

}  // namespace lockstep::parallel::internal
