// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/counters.h"

#include "testing/simdev/internal/counting.h"
#include "testing/simdev/internal/device_heap.h"
#include "testing/simdev/simdev.h"

namespace lockstep::simdev {

Counters counters(int index) {
  const int checked = device(index).index();
  const internal::HeapCounts memory = internal::heap(checked).counts();
  Counters all = internal::counts_taken(checked);
  all.live_bytes = memory.live_bytes;
  all.peak_bytes = memory.peak_bytes;
  all.allocations = memory.allocations;
  return all;
}

void reset_counters() {
  for (int index = 0; index < device_count(); ++index) {
    internal::heap(index).reset_peak();
    internal::heap(index).reset_allocations();
    internal::reset_counts_taken(index);
  }
}

}  // namespace lockstep::simdev
