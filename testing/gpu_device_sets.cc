// SPDX-License-Identifier: Apache-2.0
#include "testing/gpu_device_sets.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <memory>
#include <string>

#include "comm/copy_collectives.h"
#include "comm/nccl_collectives.h"
#include "testing/make_device_set.h"

namespace lockstep::testing {
namespace {

c10::Device cuda(int64_t index) {
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
}

std::vector<c10::Device> first_devices(int64_t count) {
  std::vector<c10::Device> devices;
  for (int64_t i = 0; i < count; ++i) {
    devices.push_back(cuda(i));
  }
  return devices;
}

// An engine of the kind that is the default on CUDA devices.
std::shared_ptr<comm::DeviceCollectives> default_engine(const comm::nccl::NcclApi* nccl) {
  if (nccl == nullptr) {
    return std::make_shared<comm::CopyCollectives>();
  }
  return std::make_shared<comm::NcclCollectives>(*nccl);
}

}  // namespace

int64_t cuda_device_count() {
  return c10::impl::hasDeviceGuardImpl(c10::kCUDA)
             ? c10::impl::getDeviceGuardImpl(c10::kCUDA)->deviceCount()
             : 0;
}

std::vector<DeviceSet> gpu_device_sets(int64_t cuda_devices, const comm::nccl::NcclApi* nccl) {
  std::vector<DeviceSet> sets = {cpu_device_set(2)};
  if (cuda_devices > 0) {
    sets.push_back(make_device_set("cuda1", {cuda(0)}, default_engine(nccl)));
    sets.push_back(make_device_set("cudatwice", {cuda(0), cuda(0)}, default_engine(nccl)));
  }
  for (int64_t count = 2; count <= 3 && count <= cuda_devices; ++count) {
    const std::string number = std::to_string(count);
    sets.push_back(make_device_set("cuda" + number, first_devices(count),
                                   std::make_shared<comm::CopyCollectives>()));
    if (nccl != nullptr) {
      sets.push_back(make_device_set("nccl" + number, first_devices(count),
                                     std::make_shared<comm::NcclCollectives>(*nccl)));
    }
  }
  return sets;
}

std::vector<DeviceSet> all_device_sets() {
  static const auto* const sets =
      new std::vector<DeviceSet>(gpu_device_sets(cuda_device_count(), comm::nccl::find_nccl()));
  return *sets;
}

}  // namespace lockstep::testing
