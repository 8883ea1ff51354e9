// SPDX-License-Identifier: Apache-2.0
// Streams, events and current devices through LibTorch's own interface.
#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/DeviceGuard.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <thread>
#include <utility>

#include "testing/matchers.h"
#include "testing/simdev/counters.h"
#include "testing/simdev/simdev.h"
#include "testing/simdev/stream_test_util.h"
#include "testing/simdev/test_environment.h"

namespace lockstep::simdev {
namespace {

using lockstep::testing::ThrowsError;

const bool kDevicesInUse = use_in_tests();

TEST(StreamsTest, EachThreadHasItsOwnCurrentStreamPerDevice) {
  const c10::Stream side = side_stream(2);
  const c10::StreamGuard current(side);
  EXPECT_EQ(guard().getStream(device(2)), side);
  EXPECT_EQ(guard().getStream(device(1)), default_stream(1));
  std::thread([] { EXPECT_EQ(guard().getStream(device(2)), default_stream(2)); }).join();
}

TEST(StreamsTest, StreamGuardSetsDeviceAndStreamAndBringsThemBack) {
  const c10::DeviceGuard home(device(3));
  {
    const c10::StreamGuard current(side_stream(1));
    EXPECT_EQ(guard().getDevice(), device(1));
    EXPECT_EQ(at::empty({1}, at::TensorOptions(c10::DeviceType::PrivateUse1)).device(), device(1));
  }
  EXPECT_EQ(guard().getDevice(), device(3));
  EXPECT_EQ(guard().getStream(device(1)), default_stream(1));
}

TEST(StreamsTest, PoolHoldsThirtyTwoStreamsPerDevice) {
  std::set<int64_t> ids;
  for (int i = 0; i < 64; ++i) {
    const c10::Stream stream = guard().getStreamFromGlobalPool(device(1));
    EXPECT_EQ(stream.device(), device(1));
    EXPECT_NE(stream, default_stream(1));
    ids.insert(stream.id());
  }
  EXPECT_EQ(ids.size(), 32);
}

TEST(StreamsTest, NewStreamsAreNobodyElses) {
  std::set<int64_t> ids;
  for (int i = 0; i < 100; ++i) {
    ids.insert(guard().getNewStream(device(1)).id());
  }
  for (int i = 0; i < 32; ++i) {
    ids.insert(guard().getStreamFromGlobalPool(device(1)).id());
  }
  EXPECT_EQ(ids.size(), 132);
}

TEST(StreamsTest, NativeHandlesTellStreamsApart) {
  const c10::Stream a = side_stream(1), b = side_stream(1);
  EXPECT_NE(a.native_handle(), nullptr);
  EXPECT_NE(a.native_handle(), b.native_handle());
  EXPECT_EQ(a.native_handle(), c10::Stream(a).native_handle());
}

TEST(StreamsTest, EventMeasuresTheTimeBetweenTwoRecords) {
  const auto timed = c10::EventFlag::BACKEND_DEFAULT;
  c10::Event begin(c10::DeviceType::PrivateUse1, timed), end(c10::DeviceType::PrivateUse1, timed);
  const auto before = std::chrono::steady_clock::now();
  begin.record(default_stream(1));
  at::ones({1000}, device(1)).add_(1);
  end.record(default_stream(1));
  const std::chrono::duration<double, std::milli> around =
      std::chrono::steady_clock::now() - before;
  EXPECT_GE(begin.elapsedTime(end), 0);
  EXPECT_LE(begin.elapsedTime(end), around.count());
}

TEST(StreamsTest, EventThatWasNeverRecordedOrdersNothing) {
  const c10::Event event(c10::DeviceType::PrivateUse1);
  default_stream(1).wait(event);
  event.synchronize();
  EXPECT_TRUE(event.query());
}

TEST(StreamsTest, EventStaysOnItsDevice) {
  c10::Event event(c10::DeviceType::PrivateUse1);
  event.record(default_stream(1));
  event.record(side_stream(1));
  EXPECT_THAT([&] { event.record(default_stream(2)); }, ThrowsError("device"));
}

TEST(StreamsTest, EventsAndWaitsAreCounted) {
  const c10::Stream side = side_stream(2);
  reset_counters();
  const c10::Event event = record(default_stream(1));
  side.wait(event);
  default_stream(1).wait(event);
  event.synchronize();
  side.synchronize();
  guard().synchronizeDevice(2);
  EXPECT_EQ(counters(1).events_recorded, 1);
  EXPECT_EQ(counters(2).events_recorded, 0);
  EXPECT_EQ(counters(1).event_waits, 1);
  EXPECT_EQ(counters(2).event_waits, 1);
  EXPECT_EQ(counters(1).host_syncs, 1);
  EXPECT_EQ(counters(2).host_syncs, 2);
}

TEST(StreamsTest, UnknownDevicesAreErrors) {
  EXPECT_THAT([] { guard().setDevice(c10::Device(c10::DeviceType::PrivateUse1, 4)); },
              ThrowsError("[simdev] expected one of 4 devices, got simdev:4"));
  EXPECT_EQ(guard().deviceCount(), 4);
}

TEST(StreamsTest, AreLibTorchsAccelerator) {
  EXPECT_EQ(at::getAccelerator(), c10::DeviceType::PrivateUse1);
  EXPECT_EQ(at::accelerator::deviceCount(), 4);
  at::accelerator::setDeviceIndex(2);
  EXPECT_EQ(at::accelerator::getDeviceIndex(), 2);
  at::accelerator::synchronizeDevice(2);
  at::accelerator::setDeviceIndex(0);
}

}  // namespace
}  // namespace lockstep::simdev
