// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/streams.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "testing/simdev/internal/arena.h"
#include "testing/simdev/internal/clocks.h"
#include "testing/simdev/internal/ordering.h"
#include "testing/simdev/simdev.h"

namespace lockstep::simdev::internal {
namespace {

constexpr int64_t kPoolSize = 32;

struct CurrentStream {
  int64_t id = 0;
  int number = -1;  // once asked for
};

thread_local int this_threads_device = 0;
thread_local std::array<CurrentStream, kMaxDevices> this_threads_streams;

c10::Stream stream(int device, int64_t id) {
  return c10::Stream(
      c10::Stream::UNSAFE,
      c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device)), id);
}

}  // namespace

int checked_index(c10::Device device) {
  TORCH_CHECK(device.type() == c10::DeviceType::PrivateUse1 && device.index() < device_count(),
              "[simdev] expected one of ", device_count(), " devices, got ", device);
  return device.index() < 0 ? this_threads_device : device.index();
}

int current_device() { return this_threads_device; }
void set_current_device(int device) noexcept { this_threads_device = device; }

int current_stream_number(int device) {
  CurrentStream& current = this_threads_streams[device];
  if (current.number < 0) {
    current.number = number_of_stream(device, current.id);
  }
  return current.number;
}

c10::Stream current_stream(int device) { return stream(device, this_threads_streams[device].id); }

c10::Stream exchange_stream(const c10::Stream& next) {
  const int device = checked_index(next.device());
  const c10::Stream before = current_stream(device);
  if (next.id() != before.id()) {
    this_threads_streams[device] = {next.id(), -1};
  }
  return before;
}

c10::Stream default_stream(int device) { return stream(device, 0); }

c10::Stream pool_stream(int device) {
  static std::array<std::atomic<uint64_t>, kMaxDevices> taken;
  return stream(device, 1 + static_cast<int64_t>(taken[device]++ % kPoolSize));
}

c10::Stream new_stream(int device) {
  static std::atomic<int64_t> next{kPoolSize + 1};
  return stream(device, next++);
}

}  // namespace lockstep::simdev::internal
