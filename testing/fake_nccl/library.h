// SPDX-License-Identifier: Apache-2.0
// library.h: what all parts of the library share: one lock, the attached devices, modes and counts.
// Every function of the library below its C interface is called with the lock held.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "testing/fake_nccl/fake_nccl.h"

namespace lockstep::fake_nccl::internal {

struct Library {
  std::mutex mutex;
  // Somebody who waits for peers may go on.
  std::condition_variable changed;

  FakeNcclHost host = {};
  bool is_attached = false;

  int polls = 1;
  bool ring_order = false;
  std::chrono::milliseconds deadline{10000};
  FakeNcclCounters counters = {};
};

// Never destroyed: threads may be in it while the process ends.
Library& library();

using Lock = std::unique_lock<std::mutex>;
inline Lock lock_library() { return Lock(library().mutex); }

}  // namespace lockstep::fake_nccl::internal
