// SPDX-License-Identifier: Apache-2.0
// ordering.h: what operators tell the checker and the streams.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstdint>

namespace lockstep::simdev::internal {

int current_device();
// A dense number of a stream, for the calls below.
int current_stream_number(int device);
int stream_number(const c10::Stream& stream);

bool checking_on();  // one relaxed load

// One operator that is about to run on a stream. Counts as a kernel (the caller counts).
struct Launch {
  const char* op = "";  // lives for ever
  int stream = -1;
  uint64_t time = 0;  // the stream's own clock; 0 while the checker is off
};
// Advances the stream's clock after joining the host's; throws a pending RaceError of this thread.
Launch launch(const char* op, int stream);

// Notes that the launch reads or writes the bytes of a device tensor, and throws RaceError (or
// collects) if nothing orders it after an access in conflict.
void touch(const at::Tensor& tensor, bool write, const Launch& launch);

// All that `from` was given so far comes before all that `to` will be given.
void order_streams(int from, int to);
// The host waits for the stream: runs late copies, checks pinned sources.
void synchronize_host(int stream);

// A non-blocking copy to pinned host memory: `destination` takes the values of `snapshot` only when
// the host has waited for the launch, or when flush_late_copies_into is called for it.
void copy_late(at::Tensor destination, at::Tensor snapshot, const Launch& launch);
// A non-blocking copy from pinned host memory: reports if `source` changes before the host has
// waited for the launch.
void watch_pinned_source(at::Tensor source, const Launch& launch);
// Before a host tensor with late copies to come is read by a device copy: later copies of one
// stream see earlier ones.
void flush_late_copies_into(const at::Tensor& host_tensor);

}  // namespace lockstep::simdev::internal
