// SPDX-License-Identifier: Apache-2.0
#include "parallel/device_policy.h"

#include <gtest/gtest.h>

namespace lockstep::parallel {
namespace {

TEST(DevicePolicyTest, PrintsAsItIsWritten) {
  EXPECT_EQ(::testing::PrintToString(DevicePolicy::kReplicas), "kReplicas");
  EXPECT_EQ(::testing::PrintToString(DevicePolicy::kOneDevice), "kOneDevice");
  EXPECT_EQ(::testing::PrintToString(DevicePolicy::kAutomatic), "kAutomatic");
  EXPECT_EQ(::testing::PrintToString(DeviceChoice::kUndecided), "kUndecided");
  EXPECT_EQ(::testing::PrintToString(DeviceChoice::kReplicas), "kReplicas");
  EXPECT_EQ(::testing::PrintToString(DeviceChoice::kOneDevice), "kOneDevice");
}

}  // namespace
}  // namespace lockstep::parallel
