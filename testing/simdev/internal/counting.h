// SPDX-License-Identifier: Apache-2.0
// counting.h: where the counts of counters.h are taken. Thread-safe, relaxed.
#pragma once

#include <cstddef>
#include <string>

#include "testing/simdev/counters.h"

namespace lockstep::simdev::internal {

enum class CopyDirection { kHostToDevice, kDeviceToHost, kPeer };

void count_kernel(int device);
void count_copy(int device, CopyDirection direction, size_t bytes);
void count_event_recorded(int device);
void count_event_wait(int device);
void count_host_sync(int device);
bool counting_operators();  // one relaxed load
void count_operator(const std::string& name);

// All but those of the memory, which the device's heap counts.
Counters counts_taken(int device);
void reset_counts_taken(int device);

}  // namespace lockstep::simdev::internal
