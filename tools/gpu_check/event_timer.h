// SPDX-License-Identifier: Apache-2.0
// event_timer: how long a device takes for work, by its own clock.
#pragma once

#include <c10/core/Device.h>

#include <functional>

namespace lockstep::gpu_check {

// Seconds between the device reaching the work and finishing it, on its current stream, to which
// the work's results belong. The host waits for the end.
double device_seconds(c10::Device device, const std::function<void()>& work);

}  // namespace lockstep::gpu_check
