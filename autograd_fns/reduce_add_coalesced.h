// SPDX-License-Identifier: Apache-2.0
// reduce_add_coalesced: differentiable sums of many tensors over many devices.
// Use it to sum what replicas computed, their gradients above all. To sum without gradients use
// comm/reduce_add_coalesced.h.
//   auto sums = lockstep::autograd_fns::reduce_add_coalesced({{a0, b0}, {a1, b1}}, dev0);
//   sums[1];  // b0 + b1, on dev0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

#include <vector>

#include "comm/coalesce.h"

namespace lockstep::autograd_fns {

// Returns sums[t] = inputs[0][t] + inputs[1][t] + ..., in row order, always fresh. An undefined
// entry counts as zero; where all rows are undefined the sum is undefined.
// Shapes:  inputs[i][t] [...] -> sums[t] [...]; over i, sizes and dtype agree.
// Devices: each row on one device, any; sums on `destination`.
// Grad:    backward of reduce_add_coalesced is broadcast to the rows' devices. One node per call.
//          Sums of entries that need no grad need none. `options.collectives`, if given, must
//          outlive the graph.
// Throws:  c10::Error as comm::reduce_add_coalesced, and if a row lies on two devices.
std::vector<at::Tensor> reduce_add_coalesced(c10::ArrayRef<std::vector<at::Tensor>> inputs,
                                             c10::Device destination,
                                             const comm::CoalesceOptions& options = {});

}  // namespace lockstep::autograd_fns
