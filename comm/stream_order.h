// SPDX-License-Identifier: Apache-2.0
// stream_order: makes work on one stream come after work on another, without the host waiting.
#pragma once

#include <c10/core/Stream.h>

namespace lockstep::comm {

// Whatever `later` is given from now on begins once all that `earlier` holds now is done.
// Devices: two streams of one accelerator type, of the same device or of two.
// Threads: safe.
void make_wait(const c10::Stream& later, const c10::Stream& earlier);

}  // namespace lockstep::comm
