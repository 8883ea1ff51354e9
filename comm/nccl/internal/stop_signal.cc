// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/internal/stop_signal.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace lockstep::comm::nccl::internal {
namespace {

constexpr int kRoundsThatGiveWay = 256;
constexpr int kDoublings = 10;  // from one microsecond to about one millisecond

}  // namespace

void StopSignal::request() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    requested_ = true;
  }
  changed_.notify_all();
}

void StopSignal::pause(int round) {
  if (round < kRoundsThatGiveWay) {
    std::this_thread::yield();
    return;
  }
  const std::chrono::microseconds wait(1 << std::min(round - kRoundsThatGiveWay, kDoublings));
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, wait, [this] { return requested(); });
}

}  // namespace lockstep::comm::nccl::internal
