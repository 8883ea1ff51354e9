// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "tools/benchmarks/process_settings.h"

namespace lockstep::benchmarks {
namespace {

TEST(MachineTest, EveryFactHasAValue) {
  for (const auto& [name, value] : machine_facts()) {
    EXPECT_FALSE(name.empty());
    EXPECT_FALSE(value.empty()) << name;
  }
}

TEST(MachineTest, NamesTheLibTorchVersion) {
  const auto facts = machine_facts();
  const auto libtorch = std::find_if(facts.begin(), facts.end(),
                                     [](const auto& fact) { return fact.first == "libtorch"; });
  ASSERT_NE(libtorch, facts.end());
  EXPECT_EQ(libtorch->second.rfind("2.", 0), 0u) << libtorch->second;
}

TEST(MachineTest, ThereIsAtLeastOneCore) { EXPECT_GE(available_cores(), 1); }

// The smallest normal float, halved at run time: zero where denormals are flushed.
float half_of_the_smallest() {
  volatile float smallest = 1.17549435e-38F;
  volatile float half = smallest / 2;
  return half;
}

TEST(ProcessSettingsTest, ThreadsStartedLaterFlushDenormalsToo) {
  set_up_process();
  EXPECT_EQ(half_of_the_smallest(), 0.0F);
  float in_thread = -1;
  std::thread([&] { in_thread = half_of_the_smallest(); }).join();
  EXPECT_EQ(in_thread, 0.0F);
}

}  // namespace
}  // namespace lockstep::benchmarks
