// SPDX-License-Identifier: Apache-2.0
// DeviceSet: a device list to run a test suite over, with the engine that moves its tensors.
// Use it for every test whose subject takes a device list: one suite then runs on logical CPU
// replicas and on every set that is added later.
//   class ScatterTest : public ::testing::TestWithParam<DeviceSet> {};
//   LOCKSTEP_INSTANTIATE_DEVICE_SETS(ScatterTest);
//   TEST_P(ScatterTest, KeepsOrder) { auto parts = scatter(input, GetParam().devices); ... }
// A suite knows this header alone; which sets there are, a program decides by what it links:
// //testing:device_sets or //testing:gpu_device_sets. To add a set, add one line to the list there.
#pragma once

#include <c10/core/Device.h>
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "comm/device_collectives.h"

namespace lockstep::testing {

struct DeviceSet {
  std::string name;  // letters and digits: becomes part of the test's name
  std::vector<c10::Device> devices;
  comm::DeviceCollectives* collectives;  // of this set alone; lives as long as the process
  std::function<void()> sync;            // waits until all work on the devices is done
  std::function<comm::CollectiveCounters()> counters;  // what `collectives` has done so far
};

// Linked with //testing:device_sets: cpu1, cpu2, cpu3, cpu4: the CPU listed that often, as logical
// replicas; sim2, sim3, sim4: so many simulated devices (simdev/), which exist while tests run;
// simtwice: one of them listed twice; nccl2, nccl3: such devices connected by NcclCollectives with a
// fake of NCCL (fake_nccl/) below. After each test a synchronisation fault or a broken rule of NCCL
// that it did not take fails it.
// Linked with //testing:gpu_device_sets: the machine's CUDA devices; see gpu_device_sets.h.
// Threads: safe.
std::vector<DeviceSet> all_device_sets();

// The set's name, for INSTANTIATE_TEST_SUITE_P and for messages of failed tests.
std::string device_set_name(const ::testing::TestParamInfo<DeviceSet>& info);
std::ostream& operator<<(std::ostream& os, const DeviceSet& set);

}  // namespace lockstep::testing

// Runs every TEST_P of `Suite`, a ::testing::TestWithParam<DeviceSet>, once per device set, as
// Devices/Suite.Case/cpu2.
#define LOCKSTEP_INSTANTIATE_DEVICE_SETS(Suite)                                         \
  INSTANTIATE_TEST_SUITE_P(Devices, Suite,                                              \
                           ::testing::ValuesIn(::lockstep::testing::all_device_sets()), \
                           ::lockstep::testing::device_set_name)
