// SPDX-License-Identifier: Apache-2.0
// device_collectives: the interface to an engine that moves and sums tensors between the devices of
// one process. The verbs of comm (broadcast.h, reduce_add.h, ...) check their arguments and call
// it. Implement it to bring a new engine; call the verbs, not this, to move tensors.
//   BroadcastOptions options;
//   options.collectives = &my_engine;
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace lockstep::comm {

// What an engine has done since it was made or last reset.
struct CollectiveCounters {
  int64_t calls = 0;     // of copy, broadcast, reduce_add and so on
  int64_t messages = 0;  // tensors sent from one slot to another
  int64_t bytes = 0;     // bytes of those tensors
};

// What becomes of the summands.
enum class Reduction {
  kSum,   // integers wrap; bool is a logical or
  kMean,  // the sum divided by their number; floating-point and complex dtypes only
};

// The arguments of one broadcast, and of one reduce_add.
struct BroadcastCall {
  at::Tensor source;
  std::vector<at::Tensor> destinations;
};
struct ReduceAddCall {
  std::vector<at::Tensor> inputs;
  at::Tensor destination;
};

// An engine. Callers give it tensors that were checked: defined, dense, of one dtype within one
// call, of equal sizes where nothing else is said, and no destination overlaps another tensor of
// the call, but for outputs that may be inputs. In the three calls with many inputs and outputs
// there are as many of each, at least one, and outputs[i] lies on the device of inputs[i].
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

  // The same as these calls one after another, none of which touches what another writes. An engine
  // that can makes one launch of them.
  virtual void broadcast_grouped(c10::ArrayRef<BroadcastCall> calls);
  virtual void reduce_add_grouped(c10::ArrayRef<ReduceAddCall> calls);

  // The coalesced verbs pack tensors into flat buffers; those of at least this many bytes they give
  // to the two calls above instead, without packing.
  virtual int64_t unpacked_bytes() const { return std::numeric_limits<int64_t>::max(); }

  // Writes what reduce_add gives for the inputs, or their mean, into every output; outputs[i] may
  // be inputs[i] itself. With k inputs, 2 (k - 1) messages.
  virtual void all_reduce(at::TensorList inputs, at::TensorList outputs, Reduction reduction) = 0;

  // Writes part i of what all_reduce would give into outputs[i]; parts follow each other along dim
  // 0. Inputs are contiguous, [k * n, ...], outputs [n, ...]: k (k - 1) messages of an output's
  // size.
  virtual void reduce_scatter(at::TensorList inputs, at::TensorList outputs,
                              Reduction reduction) = 0;

  // Writes the inputs one after another, along dim 0, into every output. Inputs are [n, ...],
  // outputs contiguous, [k * n, ...]: k (k - 1) messages of an input's size.
  virtual void all_gather(at::TensorList inputs, at::TensorList outputs) = 0;

  virtual CollectiveCounters counters() const = 0;
  virtual void reset_counters() = 0;
};

// Returns the engine used when options name none: NcclCollectives for CUDA devices if an NCCL
// library is found (nccl/nccl_api.h says where it is looked for), else plain copies.
// Threads: safe; the engine lives until the process ends.
DeviceCollectives& default_collectives(c10::DeviceType device_type);

}  // namespace lockstep::comm
