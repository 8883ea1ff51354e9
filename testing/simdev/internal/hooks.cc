// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/hooks.h"

#include <ATen/Context.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Storage.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "testing/simdev/internal/generator.h"
#include "testing/simdev/internal/memory.h"
#include "testing/simdev/internal/ordering.h"
#include "testing/simdev/internal/pinned.h"
#include "testing/simdev/internal/streams.h"
#include "testing/simdev/simdev.h"

namespace lockstep::simdev::internal {
namespace {

c10::Device as_device(c10::DeviceIndex index) {
  return c10::Device(c10::DeviceType::PrivateUse1, index);
}

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  // Every backward asks.
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  void init() const override {}

  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(device_count());
  }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    set_current_device(checked_index(as_device(index)));
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(current_device());
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const c10::DeviceIndex before = getCurrentDevice();
    setCurrentDevice(index);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchangeDevice(index);
  }

  bool isPinnedPtr(const void* address) const override { return is_pinned(address); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  c10::Device getDeviceFromPtr(void* address) const override {
    const int index = device_of_device_address(address);
    TORCH_CHECK(index >= 0, "[simdev] expected memory of a device, got ", address);
    return device(index);
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(checked_index(as_device(index)));
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return make_generator(checked_index(as_device(index)));
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    auto* const impl = storage.unsafeGetStorageImpl();
    const int index = storage.device().index();
    void* const memory = allocate(bytes, index);
    const size_t kept = std::min(bytes, impl->nbytes());
    if (kept > 0) {
      std::memcpy(kernel_address(memory, index), kernel_address(impl->data(), index), kept);
    }
    impl->set_data_ptr_noswap(c10::DataPtr(memory, memory, &release, storage.device()));
    impl->set_nbytes(bytes);
  }
};

}  // namespace

void register_hooks() {
  // Never destroyed: LibTorch keeps the pointer.
  static auto* const hooks = new Hooks();
  at::RegisterPrivateUse1HooksInterface(hooks);
  at::globalContext().lazyInitDevice(c10::DeviceType::PrivateUse1);
}

}  // namespace lockstep::simdev::internal
