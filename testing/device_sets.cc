// SPDX-License-Identifier: Apache-2.0
#include "testing/device_sets.h"

#include "comm/copy_collectives.h"

namespace lockstep::testing {
namespace {

DeviceSet cpu_set(int64_t replicas) {
  // Never freed: tests may use the set until the process ends.
  comm::DeviceCollectives* collectives = new comm::CopyCollectives();
  return {"cpu" + std::to_string(replicas),
          std::vector<c10::Device>(replicas, c10::Device(c10::kCPU)), collectives, [] {},
          [collectives] { return collectives->counters(); }};
}

}  // namespace

std::vector<DeviceSet> all_device_sets() {
  static const auto* const sets = new std::vector<DeviceSet>{
      cpu_set(1),
      cpu_set(2),
      cpu_set(3),
      cpu_set(4),
  };
  return *sets;
}

std::string device_set_name(const ::testing::TestParamInfo<DeviceSet>& info) {
  return info.param.name;
}

std::ostream& operator<<(std::ostream& os, const DeviceSet& set) { return os << set.name; }

}  // namespace lockstep::testing
