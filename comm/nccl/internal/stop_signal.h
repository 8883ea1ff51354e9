// SPDX-License-Identifier: Apache-2.0
// stop_signal: ends a wait of another thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

namespace lockstep::comm::nccl::internal {

// Threads: safe.
class StopSignal {
 public:
  void request();
  bool requested() const { return requested_.load(); }

  // What a loop that asks NCCL again and again does after the `round`-th answer, from 0: gives way
  // to other threads at first, since most groups are taken within microseconds, then waits longer
  // and longer, up to a millisecond. NCCL has nothing that could be waited for instead. Returns at
  // once when a stop is requested.
  void pause(int round);

 private:
  std::atomic<bool> requested_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace lockstep::comm::nccl::internal
