// SPDX-License-Identifier: Apache-2.0
// device_collectives: the interface to an engine that moves and sums tensors between the devices of
// one process. The verbs of comm (broadcast.h, reduce_add.h, ...) check their arguments and call
// it. Implement it to bring a new engine; call the verbs, not this, to move tensors.
//   BroadcastOptions options;
//   options.collectives = &my_engine;
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>

#include <cstdint>
#include <string>

namespace lockstep::comm {

// What an engine has done since it was made or last reset.
struct CollectiveCounters {
  int64_t calls = 0;     // calls of copy, broadcast and reduce_add
  int64_t messages = 0;  // tensors sent from one slot to another
  int64_t bytes = 0;     // bytes of those tensors
};

// An engine. Callers give it tensors that were checked: defined, dense, of equal sizes and dtype
// within one call, and no destination overlaps another tensor of the call.
// Devices: any, mixed, and the same device several times. A call is ordered after the current
//          streams of all devices involved, and its results are ready on each device's current
//          stream; the host waits only when an end is unpinned CPU memory.
// Grad:    none is recorded; the version counter of each destination rises.
// Threads: implementations may be called from several threads at once.
class DeviceCollectives {
 public:
  virtual ~DeviceCollectives() = default;

  // A short lower-case name, for messages and benchmark tables.
  virtual std::string name() const = 0;

  // Copies `source` into the storage of `destination`. One message.
  virtual void copy(const at::Tensor& source, const at::Tensor& destination) = 0;

  // Copies `source` into every destination. One message each.
  virtual void broadcast(const at::Tensor& source, at::TensorList destinations) = 0;

  // Writes inputs[0] + inputs[1] + ... into `destination`: each partial sum is rounded to the
  // dtype, in list order. Integers wrap; bool is a logical or. One message for each input, but for
  // the one that is at home when the destination's device holds one.
  virtual void reduce_add(at::TensorList inputs, const at::Tensor& destination) = 0;

  virtual CollectiveCounters counters() const = 0;
  virtual void reset_counters() = 0;
};

// Returns the engine used when options name none: plain copies for every device type.
// Threads: safe; the engine lives until the process ends.
DeviceCollectives& default_collectives(c10::DeviceType device_type);

}  // namespace lockstep::comm
