// SPDX-License-Identifier: Apache-2.0
#include "parallel/parallel_apply.h"

#include "comm/device_list.h"

namespace lockstep::parallel::internal {

std::vector<c10::Device> devices_of_replicas(c10::ArrayRef<c10::Device> given,
                                             const std::vector<std::optional<c10::Device>>& found) {
  if (!given.empty()) {
    return comm::normalize_devices("parallel_apply", given);
  }
  std::vector<c10::Device> devices;
  devices.reserve(found.size());
  for (size_t i = 0; i < found.size(); ++i) {
    TORCH_CHECK(found[i].has_value(), "[parallel_apply] the input of replica ", i,
                " holds no tensor to tell its device from: pass the devices");
    devices.push_back(*found[i]);
  }
  return devices;
}

}  // namespace lockstep::parallel::internal
