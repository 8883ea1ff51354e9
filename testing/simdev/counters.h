// SPDX-License-Identifier: Apache-2.0
// counters.h: exact counts of what each simulated device did.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace lockstep::simdev {

struct Counters {
  int64_t live_bytes = 0;  // as asked for, without rounding
  int64_t peak_bytes = 0;
  int64_t allocations = 0;
  int64_t kernels = 0;  // operators that ran on the device; views and allocations are none
  int64_t host_to_device_copies = 0, host_to_device_bytes = 0;
  int64_t device_to_host_copies = 0, device_to_host_bytes = 0;
  int64_t peer_copies = 0, peer_bytes = 0;  // counted at the source
  int64_t events_recorded = 0, event_waits = 0, host_syncs = 0;
};

// Kernels of native_launch.h count too, here and below.
// Throws: c10::Error if there is no such device. Threads: all of these are safe.
Counters counters(int device);
// Of all devices: sets all but live_bytes to zero, and peak_bytes to live_bytes.
void reset_counters();

// How often each operator ("aten::add.Tensor") ran on the devices since count_operators(true), which
// begins anew.
void count_operators(bool on);
std::map<std::string, int64_t> operator_counts();

}  // namespace lockstep::simdev
