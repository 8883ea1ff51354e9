// SPDX-License-Identifier: Apache-2.0
// copy_collectives: the engine that needs nothing but LibTorch: tensor copies and additions. It
// runs on every device type and is the default where NCCL is not; see device_collectives.h for the
// interface.
//   lockstep::comm::CopyCollectives engine;
//   options.collectives = &engine;  // own counters, say for a test
#pragma once

#include <atomic>
#include <string>

#include "comm/device_collectives.h"

namespace lockstep::comm {

// Copies for everything; sums happen on the destination's device. CPU sums of float and double with
// equal strides are one pass over the inputs.
// Threads: safe.
class CopyCollectives : public DeviceCollectives {
 public:
  std::string name() const override { return "copy"; }
  void copy(const at::Tensor& source, const at::Tensor& destination) override;
  void broadcast(const at::Tensor& source, at::TensorList destinations) override;
  void reduce_add(at::TensorList inputs, const at::Tensor& destination) override;
  void all_reduce(at::TensorList inputs, at::TensorList outputs, Reduction reduction) override;
  void reduce_scatter(at::TensorList inputs, at::TensorList outputs, Reduction reduction) override;
  void all_gather(at::TensorList inputs, at::TensorList outputs) override;
  CollectiveCounters counters() const override;
  void reset_counters() override;

 private:
  void count(int64_t messages, const at::Tensor& message);

  std::atomic<int64_t> calls_{0};
  std::atomic<int64_t> messages_{0};
  std::atomic<int64_t> bytes_{0};
};

}  // namespace lockstep::comm
