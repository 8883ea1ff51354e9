// SPDX-License-Identifier: Apache-2.0
// scatter: differentiable split of one tensor over many devices; gather.h is the inverse.
// Use it to give every replica its part of a batch. To split without gradients use comm/scatter.h.
//   auto pieces = lockstep::autograd_fns::scatter(batch, {dev0, dev1});
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

#include <vector>

#include "comm/scatter.h"

namespace lockstep::autograd_fns {

// Splits `input` along `options.dim`, piece i for devices[i], as comm::scatter does, but every
// piece has memory of its own, also on the input's device. See Note [Pieces own their memory].
// Shapes:  input [..., N, ...] -> pieces[i] [..., N_i, ...]; sum of N_i = N.
// Devices: input on any device; pieces[i] on devices[i]. Without chunk_sizes few rows can give
//          fewer pieces than devices.
// Grad:    backward of scatter is gather onto the input's device; a piece without gradient counts
//          as zero. One node per call. Pieces of an input that needs no grad need none.
//          `options.collectives`, if given, must outlive the graph.
// Throws:  c10::Error as comm::scatter.
std::vector<at::Tensor> scatter(const at::Tensor& input, c10::ArrayRef<c10::Device> devices,
                                const comm::ScatterOptions& options = {});

}  // namespace lockstep::autograd_fns
