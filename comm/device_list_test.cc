// SPDX-License-Identifier: Apache-2.0
#include "comm/device_list.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/matchers.h"
#include "testing/simdev/simdev.h"
#include "testing/simdev/test_environment.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::ThrowsError;
using ::testing::ElementsAre;

const c10::Device kCpu(c10::kCPU);
const c10::Device kAccelerator(c10::DeviceType::PrivateUse1);  // of no particular index
const bool kDevicesInUse = simdev::use_in_tests();             // four

TEST(DeviceListTest, MakesOneDeviceOfCpuAndCpu0) {
  EXPECT_EQ(normalize_device("op", c10::Device("cpu:0")), kCpu);
  EXPECT_EQ(normalize_device("op", kCpu), kCpu);
}

TEST(DeviceListTest, KeepsOrderAndLogicalReplicas) {
  EXPECT_THAT(normalize_devices("op", {c10::Device("cpu:0"), kCpu, c10::Device("meta"), kCpu}),
              ElementsAre(kCpu, kCpu, c10::Device("meta"), kCpu));
}

TEST(DeviceListTest, RejectsACpuIndexAboveZeroAndNamesThePosition) {
  EXPECT_THAT(
      [] {
        normalize_devices("op", {kCpu, c10::Device("cpu:1")});
      },
      ThrowsError("[op] expected cpu or cpu:0, got cpu:1, at position 1"));
  EXPECT_THAT([] { normalize_device("op", c10::Device("cpu:2")); },
              ThrowsError("[op] expected cpu or cpu:0, got cpu:2"));
}

TEST(DeviceListTest, AnAcceleratorWithoutIndexIsTheCurrentOne) {
  EXPECT_EQ(normalize_device("op", kAccelerator), simdev::device(0));
  const c10::DeviceGuard current(simdev::device(2));
  EXPECT_EQ(normalize_device("op", kAccelerator), simdev::device(2));
  EXPECT_THAT(normalize_devices("op", {simdev::device(1), kAccelerator, kCpu}),
              ElementsAre(simdev::device(1), simdev::device(2), kCpu));
}

TEST(DeviceListTest, RejectsAnEmptyList) {
  EXPECT_THAT([] { normalize_devices("op", {}); },
              ThrowsError("[op] expected at least one device, got an empty list"));
}

TEST(DeviceListTest, RejectsADeviceTypeTheProgramLacks) {
  if (c10::impl::hasDeviceGuardImpl(c10::DeviceType::XPU)) {
    GTEST_SKIP() << "this program has XPU support";
  }
  EXPECT_THAT(
      [] {
        normalize_devices("op", {kCpu, c10::Device("xpu:0")});
      },
      ThrowsError("expected a device that this program supports, got xpu:0, at position 1"));
}

TEST(DeviceListTest, SaysWhatAProgramWithoutCudaLacks) {
  if (c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA)) {
    GTEST_SKIP() << "this program has CUDA support";
  }
  EXPECT_THAT([] { normalize_devices("op", {c10::Device("cuda:0")}); },
              ThrowsError("got cuda:0, at position 0; for CUDA link @libtorch//:cuda"));
}

TEST(DeviceListTest, RejectsAnIndexBeyondTheDeviceCount) {
  EXPECT_THAT(
      [] {
        normalize_devices("op", {simdev::device(2), c10::Device(kAccelerator.type(), 4)});
      },
      ThrowsError("[op] expected an index below 4, got"));
  EXPECT_THAT([] { normalize_devices("op", {c10::Device("meta:3")}); },
              ThrowsError("expected an index below 1, got meta:3, at position 0"));
}

}  // namespace
}  // namespace lockstep::comm
