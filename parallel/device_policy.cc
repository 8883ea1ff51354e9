// SPDX-License-Identifier: Apache-2.0
#include "parallel/device_policy.h"

namespace lockstep::parallel {

std::ostream& operator<<(std::ostream& os, DevicePolicy policy) {
  switch (policy) {
    case DevicePolicy::kReplicas:
      return os << "kReplicas";
    case DevicePolicy::kOneDevice:
      return os << "kOneDevice";
    case DevicePolicy::kAutomatic:
      return os << "kAutomatic";
  }
  return os << static_cast<int>(policy);
}

std::ostream& operator<<(std::ostream& os, DeviceChoice choice) {
  switch (choice) {
    case DeviceChoice::kUndecided:
      return os << "kUndecided";
    case DeviceChoice::kReplicas:
      return os << "kReplicas";
    case DeviceChoice::kOneDevice:
      return os << "kOneDevice";
  }
  return os << static_cast<int>(choice);
}

}  // namespace lockstep::parallel
