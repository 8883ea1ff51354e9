// SPDX-License-Identifier: Apache-2.0
// gather: joins tensors that lie on many devices into one; the inverse of scatter.h. Inside a
// differentiable forward use autograd_fns/gather.h.
//   auto batch = lockstep::comm::gather({piece0, piece1}, c10::Device("cuda:0"));
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>

#include "comm/device_collectives.h"

namespace lockstep::comm {

struct GatherOptions {
  DeviceCollectives* collectives = nullptr;  // null: default_collectives()
};

// Returns the inputs joined along `dim`, in list order, as a fresh tensor on `destination`.
// Shapes:  inputs[i] [..., N_i, ...] -> [..., sum of N_i, ...]; all other dims and the dtype
//          agree. The memory format is kept if all inputs with elements agree on it, else it is
//          contiguous.
// Devices: inputs on any devices, dense.
// Grad:    none is recorded; the result does not require grad.
// Throws:  c10::Error if there are no inputs, one has no dimension, `dim` is out of range, or
//          shapes or dtypes disagree; the message names the index, both values and the dim.
at::Tensor gather(at::TensorList inputs, c10::Device destination, int64_t dim = 0,
                  const GatherOptions& options = {});

// As gather, but writes into `output` and returns it. The version counter of output rises.
// Throws:  also if `output` does not have the joined shape, differs in dtype, or overlaps an
//          input, before anything is written.
at::Tensor gather_out(at::TensorList inputs, const at::Tensor& output, int64_t dim = 0,
                      const GatherOptions& options = {});

}  // namespace lockstep::comm
