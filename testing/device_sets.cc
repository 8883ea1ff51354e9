// SPDX-License-Identifier: Apache-2.0
#include "testing/device_sets.h"

#include <c10/util/Exception.h>

#include <memory>
#include <utility>

#include "comm/copy_collectives.h"
#include "comm/nccl_collectives.h"
#include "testing/fake_nccl/simulated_nccl.h"
#include "testing/make_device_set.h"

namespace lockstep::testing {
namespace {

constexpr int kSimulatedDevices = 4;

// The devices exist once the tests run; the list is made before.
DeviceSet simulated_set(const std::string& name, int count,
                        const std::shared_ptr<comm::DeviceCollectives>& collectives) {
  std::vector<c10::Device> devices;
  for (int i = 0; i < count; ++i) {
    devices.emplace_back(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(i));
  }
  return make_device_set(name + std::to_string(count), std::move(devices), collectives);
}

DeviceSet sim_set(int count) {
  return simulated_set("sim", count, std::make_shared<comm::CopyCollectives>());
}

// As people list one GPU on which two replicas fit.
DeviceSet sim_twice_set() {
  const c10::Device first(c10::DeviceType::PrivateUse1, 0);
  return make_device_set("simtwice", {first, first}, std::make_shared<comm::CopyCollectives>());
}

DeviceSet nccl_set(int count) {
  return simulated_set("nccl", count,
                       std::make_shared<comm::NcclCollectives>(fake_nccl::simulated_nccl()));
}

}  // namespace

std::vector<DeviceSet> all_device_sets() {
  static const bool simulated = fake_nccl::use_in_tests({/*devices=*/kSimulatedDevices});
  TORCH_INTERNAL_ASSERT(simulated);
  static const auto* const sets = new std::vector<DeviceSet>{
      cpu_device_set(1), cpu_device_set(2), cpu_device_set(3), cpu_device_set(4), sim_set(2),
      sim_set(3),        sim_set(4),        sim_twice_set(),   nccl_set(2),       nccl_set(3),
  };
  return *sets;
}

}  // namespace lockstep::testing
