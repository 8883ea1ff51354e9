// SPDX-License-Identifier: Apache-2.0
#include "comm/device_list.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <optional>
#include <string>

namespace lockstep::comm {
namespace {

std::string at_position(std::optional<size_t> position) {
  return position ? ", at position " + std::to_string(*position) : "";
}

c10::Device normalize(const char* op, c10::Device device, std::optional<size_t> position) {
  if (device.is_cpu()) {
    TORCH_CHECK(device.index() <= 0, "[", op, "] expected cpu or cpu:0, got ", device,
                at_position(position));
    return c10::Device(c10::DeviceType::CPU);
  }
  TORCH_CHECK(c10::impl::hasDeviceGuardImpl(device.type()), "[", op,
              "] expected a device that this program supports, got ", device, at_position(position),
              device.is_cuda() ? "; for CUDA link @libtorch//:cuda" : "");
  const c10::impl::VirtualGuardImpl guard(device.type());
  if (!device.has_index()) {
    return guard.getDevice();
  }
  TORCH_CHECK(device.index() < guard.deviceCount(), "[", op, "] expected an index below ",
              static_cast<int>(guard.deviceCount()), ", got ", device, at_position(position));
  return device;
}

}  // namespace

c10::Device normalize_device(const char* op, c10::Device device) {
  return normalize(op, device, std::nullopt);
}

std::vector<c10::Device> normalize_devices(const char* op, c10::ArrayRef<c10::Device> devices) {
  TORCH_CHECK(!devices.empty(), "[", op, "] expected at least one device, got an empty list");
  std::vector<c10::Device> normalized;
  normalized.reserve(devices.size());
  for (size_t i = 0; i < devices.size(); ++i) {
    normalized.push_back(normalize(op, devices[i], i));
  }
  return normalized;
}

}  // namespace lockstep::comm
