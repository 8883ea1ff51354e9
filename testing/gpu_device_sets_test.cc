// SPDX-License-Identifier: Apache-2.0
#include "testing/gpu_device_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace lockstep::testing {
namespace {

using ::testing::ElementsAre;

const c10::Device kFirst(c10::kCUDA, 0);
const c10::Device kSecond(c10::kCUDA, 1);
const c10::Device kThird(c10::kCUDA, 2);

// Functions of no library: engines keep the table and call nothing until a test gives them work.
const comm::nccl::NcclApi kTable;

std::vector<std::string> names(const std::vector<DeviceSet>& sets) {
  std::vector<std::string> names;
  for (const DeviceSet& set : sets) {
    names.push_back(set.name);
  }
  return names;
}

TEST(GpuDeviceSetsTest, AreTheCpuAloneWhereThereIsNoDevice) {
  EXPECT_THAT(names(gpu_device_sets(0, &kTable)), ElementsAre("cpu2"));
}

TEST(GpuDeviceSetsTest, ListOneDeviceOnceAndTwice) {
  const std::vector<DeviceSet> sets = gpu_device_sets(1, &kTable);
  ASSERT_THAT(names(sets), ElementsAre("cpu2", "cuda1", "cudatwice"));
  EXPECT_THAT(sets[1].devices, ElementsAre(kFirst));
  EXPECT_THAT(sets[2].devices, ElementsAre(kFirst, kFirst));
  EXPECT_EQ(sets[1].collectives->name(), "nccl");
  EXPECT_EQ(sets[2].collectives->name(), "nccl");
}

TEST(GpuDeviceSetsTest, ConnectSeveralDevicesByCopiesAndByNccl) {
  EXPECT_THAT(names(gpu_device_sets(2, &kTable)),
              ElementsAre("cpu2", "cuda1", "cudatwice", "cuda2", "nccl2"));
  const std::vector<DeviceSet> sets = gpu_device_sets(8, &kTable);
  ASSERT_THAT(names(sets),
              ElementsAre("cpu2", "cuda1", "cudatwice", "cuda2", "nccl2", "cuda3", "nccl3"));
  EXPECT_THAT(sets[5].devices, ElementsAre(kFirst, kSecond, kThird));
  EXPECT_EQ(sets[5].collectives->name(), "copy");
  EXPECT_EQ(sets[6].devices, sets[5].devices);
  EXPECT_EQ(sets[6].collectives->name(), "nccl");
}

TEST(GpuDeviceSetsTest, NeedNoNccl) {
  const std::vector<DeviceSet> sets = gpu_device_sets(3, nullptr);
  EXPECT_THAT(names(sets), ElementsAre("cpu2", "cuda1", "cudatwice", "cuda2", "cuda3"));
  for (const DeviceSet& set : sets) {
    EXPECT_EQ(set.collectives->name(), "copy") << set.name;
  }
}

TEST(GpuDeviceSetsTest, HaveEnginesOfTheirOwn) {
  std::set<comm::DeviceCollectives*> engines;
  for (const DeviceSet& set : gpu_device_sets(3, &kTable)) {
    EXPECT_TRUE(engines.insert(set.collectives).second) << set.name;
  }
}

TEST(GpuDeviceSetsTest, AreAllThatTheMachineHas) {
  const std::vector<DeviceSet> sets = all_device_sets();
  EXPECT_EQ(sets[0].name, "cpu2");
  EXPECT_EQ(sets.size() > 1, cuda_device_count() > 0);
  EXPECT_EQ(all_device_sets()[0].collectives, sets[0].collectives);
}

}  // namespace
}  // namespace lockstep::testing
