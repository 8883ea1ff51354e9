// SPDX-License-Identifier: Apache-2.0
// gradient_router.h: where the gradients of the replicas' tensors go. Internal to the project.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <vector>

namespace lockstep::replicate::internal {

// One tensor of the original that requires grad, and each replica's copy of it.
struct RoutedTensor {
  at::Tensor original;
  torch::autograd::Edge edge;        // the original's own: its accumulator, if it is a leaf
  std::vector<at::Tensor> replicas;  // by replica
};

class GradientRouter {
 public:
  virtual ~GradientRouter();

  // Returns the edges to give the replicas' copies, by replica and then in the order of `tensors`.
  // Called when the replicas are made, and again when a tensor was frozen, thawed or replaced.
  virtual std::vector<torch::autograd::edge_list> route(
      const std::vector<RoutedTensor>& tensors) = 0;

  // Forgets the edges given last and the originals' edges they lead to.
  virtual void clear() {}

  // Whether the edges given last must not be used for a new forward.
  virtual bool stale() const { return false; }
};

}  // namespace lockstep::replicate::internal
