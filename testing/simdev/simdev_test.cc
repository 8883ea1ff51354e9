// SPDX-License-Identifier: Apache-2.0
// No test environment here: what holds before initialize(), and initialize() itself.
#include "testing/simdev/simdev.h"

#include <ATen/ATen.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "testing/matchers.h"
#include "testing/simdev/checker.h"

namespace lockstep::simdev {
namespace {

using lockstep::testing::ThrowsError;
using ::testing::ElementsAre;

Options with_devices(int devices) {
  Options options;
  options.devices = devices;
  return options;
}

// One test: its steps depend on the process's state.
TEST(InitializeTest, HappensOnceWithOneSetOfOptions) {
  EXPECT_FALSE(is_initialized());
  EXPECT_EQ(device_count(), 0);
  EXPECT_FALSE(c10::is_privateuse1_backend_registered());
  EXPECT_FALSE(c10::impl::hasDeviceGuardImpl(c10::DeviceType::PrivateUse1));
  EXPECT_THAT([] { device(0); }, ThrowsError("[simdev::device] expected an index below 0, got 0"));

  EXPECT_THAT([] { initialize(with_devices(1)); },
              ThrowsError("[simdev::initialize] expected 2 to 16 devices, got 1"));
  EXPECT_THAT([] { initialize(with_devices(17)); },
              ThrowsError("[simdev::initialize] expected 2 to 16 devices, got 17"));
  Options no_memory;
  no_memory.memory_bytes = 0;
  EXPECT_THAT([&] { initialize(no_memory); },
              ThrowsError("[simdev::initialize] expected memory for each device, got 0 bytes"));
  EXPECT_FALSE(is_initialized());

  initialize(with_devices(3));
  EXPECT_TRUE(is_initialized());
  EXPECT_TRUE(checking());
  EXPECT_EQ(device_count(), 3);
  initialize(with_devices(3));
  EXPECT_THAT([] { initialize(with_devices(4)); },
              ThrowsError("[simdev::initialize] expected the options of the first call"));

  EXPECT_THAT([] { device(3); }, ThrowsError("[simdev::device] expected an index below 3, got 3"));
  EXPECT_THAT([] { device(-1); }, ThrowsError("got -1"));
  EXPECT_EQ(device(2), c10::Device("simdev:2"));
  EXPECT_THAT(devices({2, 0}), ElementsAre(device(2), device(0)));
  EXPECT_THAT(first_devices(2), ElementsAre(device(0), device(1)));
  EXPECT_THAT([] { first_devices(4); }, ThrowsError("got 3"));
  std::ostringstream printed;
  printed << device(2);
  EXPECT_EQ(printed.str(), "simdev:2");
  EXPECT_THAT([] { at::empty({2}, c10::Device(c10::DeviceType::PrivateUse1, 5)); },
              ThrowsError("[simdev] expected one of 3 devices, got simdev:5"));
  EXPECT_EQ(at::empty({2}, device(1)).device(), device(1));
}

}  // namespace
}  // namespace lockstep::simdev
