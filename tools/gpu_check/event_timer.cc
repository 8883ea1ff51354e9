// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/event_timer.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace lockstep::gpu_check {

double device_seconds(c10::Device device, const std::function<void()>& work) {
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  // Unlike PYTORCH_DEFAULT, this flag has the device note the time.
  c10::Event begin(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  c10::Event end(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  begin.record(stream);
  work();
  end.record(stream);
  end.synchronize();
  return begin.elapsedTime(end) * 1e-3;
}

}  // namespace lockstep::gpu_check
