// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/counting.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#include "testing/simdev/internal/arena.h"

namespace lockstep::simdev {
namespace internal {
namespace {

class Count {
 public:
  void add(int64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  int64_t get() const { return value_.load(std::memory_order_relaxed); }
  void reset() { value_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

struct CopyCounts {
  Count copies;
  Count bytes;
};

// On cache lines of their own, since threads work on devices of their own.
struct alignas(64) DeviceCounts {
  Count kernels;
  std::array<CopyCounts, 3> copies;  // by CopyDirection
  Count events_recorded;
  Count event_waits;
  Count host_syncs;
};

std::array<DeviceCounts, kMaxDevices> device_counts;

CopyCounts& copies(int device, CopyDirection direction) {
  return device_counts[device].copies[static_cast<size_t>(direction)];
}

struct OperatorCounts {
  std::atomic<bool> on{false};
  std::mutex mutex;
  std::map<std::string, int64_t> counts;
};

OperatorCounts& operators() {
  static auto* const all = new OperatorCounts();
  return *all;
}

}  // namespace

void count_kernel(int device) { device_counts[device].kernels.add(); }

void count_copy(int device, CopyDirection direction, size_t bytes) {
  CopyCounts& counts = copies(device, direction);
  counts.copies.add();
  counts.bytes.add(static_cast<int64_t>(bytes));
}

void count_event_recorded(int device) { device_counts[device].events_recorded.add(); }
void count_event_wait(int device) { device_counts[device].event_waits.add(); }
void count_host_sync(int device) { device_counts[device].host_syncs.add(); }

bool counting_operators() { return operators().on.load(std::memory_order_relaxed); }

void count_operator(const std::string& name) {
  const std::lock_guard<std::mutex> lock(operators().mutex);
  ++operators().counts[name];
}

Counters counts_taken(int device) {
  const DeviceCounts& counts = device_counts[device];
  Counters taken;
  taken.kernels = counts.kernels.get();
  taken.host_to_device_copies = copies(device, CopyDirection::kHostToDevice).copies.get();
  taken.host_to_device_bytes = copies(device, CopyDirection::kHostToDevice).bytes.get();
  taken.device_to_host_copies = copies(device, CopyDirection::kDeviceToHost).copies.get();
  taken.device_to_host_bytes = copies(device, CopyDirection::kDeviceToHost).bytes.get();
  taken.peer_copies = copies(device, CopyDirection::kPeer).copies.get();
  taken.peer_bytes = copies(device, CopyDirection::kPeer).bytes.get();
  taken.events_recorded = counts.events_recorded.get();
  taken.event_waits = counts.event_waits.get();
  taken.host_syncs = counts.host_syncs.get();
  return taken;
}

void reset_counts_taken(int device) {
  DeviceCounts& counts = device_counts[device];
  for (CopyCounts& copies : counts.copies) {
    copies.copies.reset();
    copies.bytes.reset();
  }
  counts.kernels.reset();
  counts.events_recorded.reset();
  counts.event_waits.reset();
  counts.host_syncs.reset();
}

}  // namespace internal

void count_operators(bool on) {
  internal::OperatorCounts& operators = internal::operators();
  const std::lock_guard<std::mutex> lock(operators.mutex);
  if (on && !operators.on) {
    operators.counts.clear();
  }
  operators.on = on;
}

std::map<std::string, int64_t> operator_counts() {
  const std::lock_guard<std::mutex> lock(internal::operators().mutex);
  return internal::operators().counts;
}

}  // namespace lockstep::simdev
