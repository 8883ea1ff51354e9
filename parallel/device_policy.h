// SPDX-License-Identifier: Apache-2.0
// device_policy.h: whether a DataParallel uses all of its devices or one.
#pragma once

#include <ostream>

namespace lockstep::parallel {

// Who decides.
enum class DevicePolicy {
  // The user: the batch is split, and every device has a replica.
  kReplicas,
  // The user: the module itself gets the whole batch, on the first device.
  kOneDevice,
  // The clock: the first 22 to 102 steps of a training, or more where batches vary in size, are made
  // both ways, and the faster one
  // stays; one device where they are equal. For modules in which rows neither see each other nor
  // meet random numbers, as results would depend on the clock otherwise. Even so both add up in
  // different orders: a run repeats bit for bit only if the choice was set before its first step.
  kAutomatic,
};

// What was decided.
enum class DeviceChoice {
  kUndecided,
  kReplicas,
  kOneDevice,
};

std::ostream& operator<<(std::ostream& os, DevicePolicy policy);
std::ostream& operator<<(std::ostream& os, DeviceChoice choice);

}  // namespace lockstep::parallel
