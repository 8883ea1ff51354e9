// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/simdev.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "testing/simdev/checker.h"
#include "testing/simdev/internal/arena.h"
#include "testing/simdev/internal/device_heap.h"
#include "testing/simdev/internal/fault_handler.h"
#include "testing/simdev/internal/guard.h"
#include "testing/simdev/internal/hooks.h"
#include "testing/simdev/internal/memory.h"
#include "testing/simdev/internal/operators.h"

namespace lockstep::simdev {
namespace {

constexpr auto kDeviceType = c10::DeviceType::PrivateUse1;
constexpr const char* kName = "simdev";

// Above this LibTorch's own CPU allocators, which register with lower priorities.
constexpr uint8_t kAllocatorPriority = 100;

std::optional<Options> options_in_use;

bool same(const Options& a, const Options& b) {
  return a.devices == b.devices && a.memory_bytes == b.memory_bytes &&
         a.quarantine_bytes == b.quarantine_bytes && a.check == b.check;
}

}  // namespace

void initialize(const Options& options) {
  if (options_in_use) {
    TORCH_CHECK(same(options, *options_in_use),
                "[simdev::initialize] expected the options of the first call, got others");
    return;
  }
  TORCH_CHECK(options.devices >= 2 && options.devices <= internal::kMaxDevices,
              "[simdev::initialize] expected 2 to ", internal::kMaxDevices, " devices, got ",
              options.devices);
  TORCH_CHECK(options.memory_bytes > 0,
              "[simdev::initialize] expected memory for each device, got 0 bytes");
  TORCH_CHECK(
      !c10::is_privateuse1_backend_registered() && !c10::impl::hasDeviceGuardImpl(kDeviceType),
      "[simdev::initialize] expected the PrivateUse1 key of LibTorch to be free, got the "
      "backend ",
      c10::get_privateuse1_backend());

  // Twice what may be in use, so that pieces too small for anything seldom matter.
  internal::map_arenas(options.devices, 2 * (options.memory_bytes + options.quarantine_bytes));
  internal::make_heaps(options.devices, {options.memory_bytes, options.quarantine_bytes});
  internal::install_fault_handler();
  options_in_use = options;

  c10::register_privateuse1_backend(kName);
  // The order matters: host_allocator() takes over from the CPU allocator it finds.
  c10::Allocator* const host_allocator = internal::host_allocator();
  c10::SetCPUAllocator(host_allocator, kAllocatorPriority);
  c10::SetAllocator(kDeviceType, internal::device_allocator(), kAllocatorPriority);
  internal::register_guard();
  internal::register_hooks();
  internal::register_operators();
  set_checking(options.check);
}

bool is_initialized() { return options_in_use.has_value(); }

c10::Device device(int index) {
  TORCH_CHECK(index >= 0 && index < device_count(), "[simdev::device] expected an index below ",
              device_count(), ", got ", index);
  return c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(index));
}

std::vector<c10::Device> devices(c10::ArrayRef<int> indices) {
  std::vector<c10::Device> devices;
  for (const int index : indices) {
    devices.push_back(device(index));
  }
  return devices;
}

std::vector<c10::Device> first_devices(int count) {
  std::vector<int> indices(static_cast<size_t>(std::max(count, 0)));
  std::iota(indices.begin(), indices.end(), 0);
  return devices(indices);
}

int device_count() { return options_in_use ? options_in_use->devices : 0; }

}  // namespace lockstep::simdev
