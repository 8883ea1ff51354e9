// SPDX-License-Identifier: Apache-2.0
// make_device_set: the parts that lists of device sets are made of.
//   sets.push_back(make_device_set("cuda1", {cuda_0}, std::make_shared<comm::CopyCollectives>()));
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/device_collectives.h"
#include "testing/device_sets.h"

namespace lockstep::testing {

// A set that waits for its devices and counts as its engine does. It and its copies keep the
// engine.
DeviceSet make_device_set(const std::string& name, std::vector<c10::Device> devices,
                          const std::shared_ptr<comm::DeviceCollectives>& collectives);

// The CPU listed so often, as logical replicas, connected by copies: "cpu3" for three.
DeviceSet cpu_device_set(int64_t replicas);

}  // namespace lockstep::testing
