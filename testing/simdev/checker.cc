// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/checker.h"

#include <atomic>

#include "testing/simdev/internal/clocks.h"
#include "testing/simdev/internal/device_heap.h"
#include "testing/simdev/internal/faults.h"
#include "testing/simdev/internal/host_copies.h"
#include "testing/simdev/internal/ordering.h"
#include "testing/simdev/simdev.h"

namespace lockstep::simdev {
namespace {

std::atomic<bool> is_checking{false};

std::vector<std::string> forget_everything() {
  for (int device = 0; device < device_count(); ++device) {
    for (int stream : internal::streams_of_device(device)) {
      internal::join_host(internal::snapshot(stream));
    }
  }
  std::vector<std::string> faults = internal::settle_host_copies();
  for (int device = 0; device < device_count(); ++device) {
    internal::heap(device).forget_history(&faults);
  }
  return faults;
}

}  // namespace

namespace internal {

bool checking_on() { return is_checking.load(std::memory_order_relaxed); }

}  // namespace internal

void set_checking(bool on) {
  const bool was_on = is_checking.exchange(on);
  if (on && !was_on) {
    // The history has a gap.
    for (const std::string& fault : forget_everything()) {
      internal::raise_later(fault);
    }
  }
}

bool checking() { return internal::checking_on(); }

void set_on_fault(OnFault what) { internal::throw_faults(what == OnFault::kThrow); }

std::vector<std::string> take_reports() { return internal::take_faults(); }

std::vector<std::string> reset() {
  const std::vector<std::string> found = forget_everything();
  internal::drop_pending();
  std::vector<std::string> faults = internal::take_faults();
  faults.insert(faults.end(), found.begin(), found.end());
  return faults;
}

}  // namespace lockstep::simdev
