// SPDX-License-Identifier: Apache-2.0
// side_streams: streams for tests of what is ordered with what.
// Use it for every subject that gives work to several devices: run it on side streams and read the
// results there; simulated devices report what nothing orders.
//   const auto sides = side_streams(devices);
//   const c10::MultiStreamGuard current(sides);
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <vector>

#include "testing/device_sets.h"

namespace lockstep::testing {

// The device sets that have streams: those of distinct devices. Logical CPU replicas have none.
std::vector<DeviceSet> device_sets_with_streams();

// A new stream of each device, which waits for what the device's current one holds.
std::vector<c10::Stream> side_streams(c10::ArrayRef<c10::Device> devices);

// Makes later[i] wait for what earlier[i] holds.
void order(c10::ArrayRef<c10::Stream> earlier, c10::ArrayRef<c10::Stream> later);

// How often the host waited for one of the simulated devices so far.
int64_t host_waits(c10::ArrayRef<c10::Device> devices);

}  // namespace lockstep::testing

// Runs every TEST_P of `Suite` once per device set that has streams, as Devices/Suite.Case/sim2.
#define LOCKSTEP_INSTANTIATE_DEVICE_SETS_WITH_STREAMS(Suite)                                     \
  INSTANTIATE_TEST_SUITE_P(Devices, Suite,                                                       \
                           ::testing::ValuesIn(::lockstep::testing::device_sets_with_streams()), \
                           ::lockstep::testing::device_set_name)
