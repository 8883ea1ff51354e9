// SPDX-License-Identifier: Apache-2.0
#include "testing/device_sets.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cctype>
#include <set>
#include <sstream>

namespace lockstep::testing {
namespace {

class DeviceSetTest : public ::testing::TestWithParam<DeviceSet> {};
LOCKSTEP_INSTANTIATE_DEVICE_SETS(DeviceSetTest);

TEST_P(DeviceSetTest, CarriesItsReadableNameIntoTheTest) {
  const std::string test = ::testing::UnitTest::GetInstance()->current_test_info()->name();
  EXPECT_EQ(test, "CarriesItsReadableNameIntoTheTest/" + GetParam().name);
  std::ostringstream printed;
  printed << GetParam();
  EXPECT_EQ(printed.str(), GetParam().name);
}

TEST_P(DeviceSetTest, CountersFollowItsOwnCollectives) {
  const DeviceSet& set = GetParam();
  const int64_t calls = set.counters().calls;
  const at::Tensor source = at::ones({3}, set.devices[0]);
  const at::Tensor destination = at::zeros({3}, set.devices.back());
  set.collectives->copy(source, destination);
  set.sync();
  EXPECT_TRUE(at::equal(destination.cpu(), at::ones({3})));
  EXPECT_EQ(set.counters().calls, calls + 1);
}

TEST(AllDeviceSetsTest, HoldsOneToFourCpuReplicasWithEnginesOfTheirOwn) {
  std::set<std::string> names;
  std::set<comm::DeviceCollectives*> engines;
  for (const DeviceSet& set : all_device_sets()) {
    EXPECT_FALSE(set.devices.empty());
    EXPECT_TRUE(names.insert(set.name).second) << set.name;
    EXPECT_TRUE(engines.insert(set.collectives).second) << set.name;
    for (char c : set.name) {
      EXPECT_TRUE(std::isalnum(static_cast<unsigned char>(c))) << set.name;
    }
  }
  for (int64_t replicas = 1; replicas <= 4; ++replicas) {
    EXPECT_EQ(names.count("cpu" + std::to_string(replicas)), 1);
  }
}

}  // namespace
}  // namespace lockstep::testing
