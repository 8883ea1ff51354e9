// SPDX-License-Identifier: Apache-2.0
// streams.h: the calling thread's current device and its current stream on each device.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace lockstep::simdev::internal {

// An index of -1 means the current device.
// Throws: c10::Error if there is no such device.
int checked_index(c10::Device device);

void set_current_device(int device) noexcept;

c10::Stream current_stream(int device);
// Returns the stream that was current on its device before.
c10::Stream exchange_stream(const c10::Stream& stream);

c10::Stream default_stream(int device);
// 32 per device, handed out in turn.
c10::Stream pool_stream(int device);
// One that nobody has yet; never given back.
c10::Stream new_stream(int device);

}  // namespace lockstep::simdev::internal
