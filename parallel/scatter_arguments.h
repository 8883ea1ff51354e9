// SPDX-License-Identifier: Apache-2.0
// scatter_arguments.h: gives every replica its part of a call's tensors. Internal to parallel.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <vector>

#include "comm/device_collectives.h"
#include "parallel/replica_backward.h"
#include "parallel/replica_call.h"

namespace lockstep::parallel::internal {

using Chunks = std::vector<std::vector<at::Tensor>>;  // by replica, then tensor of the call

// Splits and copies the tensors to the devices, one chunk of `sizes` rows for each, as part of the
// graph. Chunks have memory of their own: a module may write to what it gets.
Chunks scatter_arguments(const ReplicaCall& call, const std::vector<int64_t>& sizes, int64_t dim,
                         c10::ArrayRef<c10::Device> devices, comm::DeviceCollectives* collectives);

// The same for replicas that run their own backward: fills in the chunks of `forward`, whose values
// are still to be copied from what is returned, and relays to the graphs of `inputs`, the call's
// tensors on the replicas' device. edges[j]: where the gradient of inputs[j] goes, if it needs one.
Chunks cut_arguments(const ReplicaCall& call, const std::vector<int64_t>& sizes, int64_t dim,
                     const std::vector<at::Tensor>& inputs, const torch::autograd::edge_list& edges,
                     OwnerId node, ReplicaForward& forward);

}  // namespace lockstep::parallel::internal
