// SPDX-License-Identifier: Apache-2.0
#include "testing/device_sets.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <utility>

#include "comm/copy_collectives.h"
#include "comm/nccl_collectives.h"
#include "testing/fake_nccl/simulated_nccl.h"

namespace lockstep::testing {
namespace {

constexpr int kSimulatedDevices = 4;

// The engine is never freed: tests may use the set until the process ends.
DeviceSet make_set(const std::string& name, std::vector<c10::Device> devices,
                   comm::DeviceCollectives* collectives, std::function<void()> sync) {
  return {name, std::move(devices), collectives, std::move(sync),
          [collectives] { return collectives->counters(); }};
}

DeviceSet cpu_set(int64_t replicas) {
  return make_set("cpu" + std::to_string(replicas),
                  std::vector<c10::Device>(replicas, c10::Device(c10::kCPU)),
                  new comm::CopyCollectives(), [] {});
}

// The devices exist once the tests run; the list is made before.
DeviceSet simulated_set(const std::string& name, int count, comm::DeviceCollectives* collectives) {
  std::vector<c10::Device> devices;
  for (int i = 0; i < count; ++i) {
    devices.emplace_back(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(i));
  }
  return make_set(name + std::to_string(count), devices, collectives, [devices] {
    for (const c10::Device device : devices) {
      const c10::impl::VirtualGuardImpl guard(device.type());
      guard.synchronizeDevice(device.index());
    }
  });
}

DeviceSet sim_set(int count) { return simulated_set("sim", count, new comm::CopyCollectives()); }

DeviceSet nccl_set(int count) {
  return simulated_set("nccl", count, new comm::NcclCollectives(fake_nccl::simulated_nccl()));
}

}  // namespace

std::vector<DeviceSet> all_device_sets() {
  static const bool simulated = fake_nccl::use_in_tests({/*devices=*/kSimulatedDevices});
  TORCH_INTERNAL_ASSERT(simulated);
  static const auto* const sets = new std::vector<DeviceSet>{
      cpu_set(1), cpu_set(2), cpu_set(3),  cpu_set(4),  sim_set(2),
      sim_set(3), sim_set(4), nccl_set(2), nccl_set(3),
  };
  return *sets;
}

std::string device_set_name(const ::testing::TestParamInfo<DeviceSet>& info) {
  return info.param.name;
}

std::ostream& operator<<(std::ostream& os, const DeviceSet& set) { return os << set.name; }

}  // namespace lockstep::testing
