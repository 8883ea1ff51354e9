// SPDX-License-Identifier: Apache-2.0
#include "testing/make_device_set.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "comm/copy_collectives.h"

namespace lockstep::testing {
namespace {

void synchronize(const std::vector<c10::Device>& devices) {
  for (const c10::Device device : devices) {
    if (!device.is_cpu()) {
      const c10::impl::VirtualGuardImpl guard(device.type());
      guard.synchronizeDevice(device.index());
    }
  }
}

}  // namespace

DeviceSet make_device_set(const std::string& name, std::vector<c10::Device> devices,
                          const std::shared_ptr<comm::DeviceCollectives>& collectives) {
  const auto sync = [devices] { synchronize(devices); };
  return {name, std::move(devices), collectives.get(), sync,
          [collectives] { return collectives->counters(); }};
}

DeviceSet cpu_device_set(int64_t replicas) {
  return make_device_set(
      "cpu" + std::to_string(replicas),
      std::vector<c10::Device>(static_cast<size_t>(replicas), c10::Device(c10::kCPU)),
      std::make_shared<comm::CopyCollectives>());
}

}  // namespace lockstep::testing
