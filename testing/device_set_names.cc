// SPDX-License-Identifier: Apache-2.0
// What device_sets.h promises whatever list of sets a program is linked with.
#include "testing/device_sets.h"

namespace lockstep::testing {

std::string device_set_name(const ::testing::TestParamInfo<DeviceSet>& info) {
  return info.param.name;
}

std::ostream& operator<<(std::ostream& os, const DeviceSet& set) { return os << set.name; }

}  // namespace lockstep::testing
