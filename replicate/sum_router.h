// SPDX-License-Identifier: Apache-2.0
// sum_router.h: one autograd node that adds up what all replicas send, for all tensors at once.
#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "comm/coalesce.h"
#include "replicate/gradient_router.h"

namespace lockstep::replicate::internal {

// Note [One Node For All Gradients]
// Every trainable tensor of every replica has a gradient edge into one node, whose own next edges
// are those of the originals. So one coalesced reduction moves everything, its order (replica 0
// first) does not depend on the timing of threads, and a tensor that some replicas do not use
// simply has no entry there. The sum is made of differentiable functions, hence second derivatives
// come out right. The alternative, a node per tensor as in LibTorch's data_parallel, costs a
// transfer per tensor and replica.
class SumRouter : public GradientRouter {
 public:
  // devices[r] is where replica r lives; sums are made on devices[0].
  SumRouter(std::vector<c10::Device> devices, comm::CoalesceOptions options);

  std::vector<torch::autograd::edge_list> route(const std::vector<RoutedTensor>& tensors) override;

 private:
  const std::vector<c10::Device> devices_;
  const comm::CoalesceOptions options_;
};

}  // namespace lockstep::replicate::internal
