// SPDX-License-Identifier: Apache-2.0
#include "comm/current_streams.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <optional>

namespace lockstep::comm {

std::vector<c10::Stream> current_streams(c10::ArrayRef<c10::Device> devices) {
  std::vector<c10::Stream> streams;
  const std::optional<c10::DeviceType> accelerator = at::getAccelerator();
  for (const c10::Device device : devices) {
    if (device.type() != accelerator) {
      continue;
    }
    const c10::Stream stream = c10::impl::VirtualGuardImpl(*accelerator).getStream(device);
    if (std::find(streams.begin(), streams.end(), stream) == streams.end()) {
      streams.push_back(stream);
    }
  }
  return streams;
}

}  // namespace lockstep::comm
