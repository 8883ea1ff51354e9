// SPDX-License-Identifier: Apache-2.0
// current_streams: what a thread must take over to work for another one. Streams are current per
// thread: without this, a worker's operators would run beside those that made its inputs.
//   const auto streams = lockstep::comm::current_streams(devices);   // on the caller
//   const c10::MultiStreamGuard same_streams(streams);               // on the worker
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/util/ArrayRef.h>

#include <vector>

namespace lockstep::comm {

// Returns the calling thread's current stream of every accelerator device in `devices`, each device
// once; none for a CPU. The devices have indices, as normalize_devices() gives them.
std::vector<c10::Stream> current_streams(c10::ArrayRef<c10::Device> devices);

}  // namespace lockstep::comm
