// SPDX-License-Identifier: Apache-2.0
// node_streams: the orders that LibTorch's engine leaves to a node whose tensors lie on several
// devices. The engine knows one stream of a node: it makes that one wait for all gradients, and
// takes all results for ready on it. A node that works on other devices too says so:
//   variable_list apply(variable_list&& grads) override {
//     const NodeStreams streams(*this, grads, {other_device});
//     variable_list results = ...;
//     streams.join();
//     return results;
//   }
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/util/ArrayRef.h>
#include <torch/csrc/autograd/function.h>

#include <optional>
#include <vector>

namespace lockstep::autograd_fns {

// Orders the streams that are current on a node's devices with the node's own stream. Does nothing
// where there is only one device, or no accelerator.
// Threads: for the thread that runs the node.
class NodeStreams {
 public:
  // Makes the current streams of `devices` and of the devices of `gradients` wait for the node's
  // stream, and keeps the gradients' memory from reuse until they are done with it. Gradients may
  // be undefined, dense or sparse COO.
  NodeStreams(torch::autograd::Node& node, at::TensorList gradients,
              c10::ArrayRef<c10::Device> devices);

  // Makes the node's stream wait for what the others were given since. Call it once the results are
  // made; not needed if the node throws.
  void join() const;

 private:
  std::optional<c10::Stream> own_;
  std::vector<c10::Stream> others_;
};

}  // namespace lockstep::autograd_fns
