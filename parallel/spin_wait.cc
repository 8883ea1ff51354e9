// SPDX-License-Identifier: Apache-2.0
#include "parallel/spin_wait.h"

#include <chrono>
#include <thread>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace lockstep::parallel::internal {
namespace {

// Longer than the gap between two phases of a step, shorter than a time slice.
constexpr std::chrono::microseconds kSpin{50};

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#endif
}

}  // namespace

void SpinWait::advance() {
  value_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) {
    // Empty, but a waiter between its check and its sleep holds the mutex.
    { const std::lock_guard<std::mutex> lock(mutex_); }
    changed_.notify_all();
  }
}

void SpinWait::wait_while(uint32_t seen) {
  static const bool one_core = std::thread::hardware_concurrency() == 1;
  if (value() != seen) {
    return;
  }
  if (!one_core) {
    const auto end = std::chrono::steady_clock::now() + kSpin;
    do {
      for (int i = 0; i < 32; ++i) {
        pause();
        if (value() != seen) {
          return;
        }
      }
    } while (std::chrono::steady_clock::now() < end);
  }
  std::unique_lock<std::mutex> lock(mutex_);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  changed_.wait(lock, [&] { return value_.load(std::memory_order_seq_cst) != seen; });
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

void Barrier::arrive_and_wait() {
  const uint32_t generation = generation_.value();
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == count_ - 1) {
    arrived_.store(0, std::memory_order_relaxed);
    generation_.advance();
  } else {
    generation_.wait_while(generation);
  }
}

}  // namespace lockstep::parallel::internal
