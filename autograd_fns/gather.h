// SPDX-License-Identifier: Apache-2.0
// gather: differentiable join of tensors that lie on many devices; the inverse of scatter.h.
// Use it to join the outputs of replicas. To join without gradients use comm/gather.h.
//   at::Tensor batch = lockstep::autograd_fns::gather({out0, out1}, dev0);
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>

#include "comm/gather.h"

namespace lockstep::autograd_fns {

// Returns the inputs joined along `dim`, in list order, as a fresh tensor on `destination`.
// Inputs that are all without dimension, the losses of replicas for example, are joined along
// dim 0 to a vector; a warning says so once per process.
// Shapes:  inputs[i] [..., N_i, ...] -> [..., sum of N_i, ...]; all other dims and the dtype agree.
//          k inputs [] -> [k].
// Devices: inputs on any devices; the result on `destination`.
// Grad:    backward of gather is scatter to the inputs' devices, with the inputs' sizes. One node
//          per call. The result needs grad if one input does. `options.collectives`, if given,
//          must outlive the graph.
// Throws:  c10::Error as comm::gather.
at::Tensor gather(at::TensorList inputs, c10::Device destination, int64_t dim = 0,
                  const comm::GatherOptions& options = {});

}  // namespace lockstep::autograd_fns
