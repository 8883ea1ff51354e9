// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/guard.h"

#include <c10/core/DeviceCapability.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <chrono>
#include <cstdint>

#include "testing/simdev/internal/clocks.h"
#include "testing/simdev/internal/counting.h"
#include "testing/simdev/internal/faults.h"
#include "testing/simdev/internal/host_copies.h"
#include "testing/simdev/internal/memory.h"
#include "testing/simdev/internal/ordering.h"
#include "testing/simdev/internal/streams.h"
#include "testing/simdev/simdev.h"

namespace lockstep::simdev::internal {
namespace {

struct Event {
  Clock clock;
  int device;
  std::chrono::steady_clock::time_point recorded_at;
};

void wait_on_host(const Event& event) {
  join_host(event.clock);
  raise_all(settle_host_copies());
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }

  c10::Device exchangeDevice(c10::Device next) const override {
    const c10::Device before = getDevice();
    setDevice(next);
    return before;
  }
  c10::Device getDevice() const override { return simdev::device(current_device()); }
  void setDevice(c10::Device next) const override { set_current_device(checked_index(next)); }
  void uncheckedSetDevice(c10::Device next) const noexcept override {
    if (next.index() >= 0) {
      set_current_device(next.index());
    }
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(device_count());
  }
  c10::DeviceCapability getDeviceCapability(c10::Device /*device*/) const override { return {}; }

  c10::Stream getStream(c10::Device device) const override {
    return current_stream(checked_index(device));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return default_stream(checked_index(device));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high_priority*/) const override {
    return pool_stream(checked_index(device));
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return new_stream(checked_index(device));
  }
  c10::Stream exchangeStream(c10::Stream next) const override { return exchange_stream(next); }
  // Not null for any stream.
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return reinterpret_cast<void*>(static_cast<intptr_t>(stream_number(stream)) + 1);
  }

  // All work is done by the time a launch returns. What is asked here is only whether the host has
  // asked.
  bool queryStream(const c10::Stream& stream) const override {
    join_host(snapshot(stream_number(stream)));
    raise_all(settle_host_copies());
    return true;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    synchronize_host(stream_number(stream));
  }
  void synchronizeDevice(c10::DeviceIndex index) const override {
    const int device = checked_index(c10::Device(type(), index));
    count_host_sync(device);
    for (int stream : streams_of_device(device)) {
      join_host(snapshot(stream));
    }
    raise_all(settle_host_copies());
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex device,
              c10::EventFlag /*flag*/) const override {
    TORCH_CHECK(device == -1 || device == stream.device_index(),
                "[event] expected an event of device ", static_cast<int>(stream.device_index()),
                " to be recorded on ", stream, ", got one of device ", static_cast<int>(device));
    if (*event == nullptr) {
      *event = new Event();
    }
    auto& recorded = *static_cast<Event*>(*event);
    recorded.clock = snapshot(stream_number(stream));
    recorded.device = stream.device_index();
    recorded.recorded_at = std::chrono::steady_clock::now();
    count_event_recorded(recorded.device);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) {
      count_event_wait(stream.device_index());
      join_stream(stream_number(stream), static_cast<Event*>(event)->clock);
    }
  }
  bool queryEvent(void* event) const override {
    if (event != nullptr) {
      wait_on_host(*static_cast<Event*>(event));
    }
    return true;
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) {
      count_host_sync(static_cast<Event*>(event)->device);
      wait_on_host(*static_cast<Event*>(event));
    }
  }
  void destroyEvent(void* event, c10::DeviceIndex /*device*/) const noexcept override {
    delete static_cast<Event*>(event);
  }
  double elapsedTime(void* begin, void* end, c10::DeviceIndex /*device*/) const override {
    TORCH_CHECK(begin != nullptr && end != nullptr, "[event] expected two recorded events");
    const auto between =
        static_cast<Event*>(end)->recorded_at - static_cast<Event*>(begin)->recorded_at;
    return std::chrono::duration<double, std::milli>(between).count();
  }

  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream) const override {
    record_stream(memory.get(), stream);
  }
};

}  // namespace

void register_guard() {
  // Never destroyed, as the registry demands.
  static const auto* const guard = new Guard();
  c10::impl::registerDeviceGuard(c10::DeviceType::PrivateUse1, guard);
}

}  // namespace lockstep::simdev::internal
