// SPDX-License-Identifier: Apache-2.0
#include "comm/stream_order.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

#include "comm/current_streams.h"
#include "testing/side_streams.h"
#include "testing/simdev/test_environment.h"

namespace lockstep::comm {
namespace {

using lockstep::simdev::finds_fault;
using lockstep::testing::DeviceSet;
using lockstep::testing::host_waits;
using lockstep::testing::side_streams;

class StreamOrderTest : public ::testing::TestWithParam<DeviceSet> {
 protected:
  const std::vector<c10::Device>& devices() const { return GetParam().devices; }
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS_WITH_STREAMS(StreamOrderTest);

TEST_P(StreamOrderTest, TheLaterStreamSeesWhatTheEarlierOneWroteAndTheHostDoesNotWait) {
  const auto sides = side_streams(devices());
  const auto callers = current_streams(devices());
  for (size_t i = 0; i < devices().size(); ++i) {
    at::Tensor written;
    {
      const c10::StreamGuard current(sides[i]);
      written = at::ones({3}, at::device(devices()[i]));
    }
    EXPECT_TRUE(finds_fault([&] { written + 1; }, {"nothing orders it after"}));
    const int64_t waits = host_waits(devices());
    make_wait(callers[i], sides[i]);
    EXPECT_EQ(host_waits(devices()), waits);
    EXPECT_EQ((written + 1).sum().item<float>(), 6);
  }
}

TEST_P(StreamOrderTest, WhatIsGivenToTheEarlierStreamAfterwardsIsNotWaitedFor) {
  const auto sides = side_streams(devices());
  make_wait(current_streams(devices())[0], sides[0]);
  at::Tensor written;
  {
    const c10::StreamGuard current(sides[0]);
    written = at::ones({3}, at::device(devices()[0]));
  }
  EXPECT_TRUE(finds_fault([&] { written + 1; }, {"nothing orders it after"}));
}

}  // namespace
}  // namespace lockstep::comm
