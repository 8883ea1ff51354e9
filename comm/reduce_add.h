// SPDX-License-Identifier: Apache-2.0
// reduce_add: sums tensors that lie on many devices onto one. For lists of tensors per device use
// reduce_add_coalesced.h.
//   auto total = lockstep::comm::reduce_add({grad0, grad1}, c10::Device("cuda:0"));
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "comm/device_collectives.h"

namespace lockstep::comm {

struct ReduceAddOptions {
  DeviceCollectives* collectives = nullptr;  // null: default_collectives()
};

// Returns inputs[0] + inputs[1] + ... on `destination`. The sum runs in list order from position 0
// whatever the destination, each partial sum rounded to the dtype. Integers wrap around in their
// own dtype; bool is a logical or. A single input that lies on `destination` is returned as it is;
// any other result is fresh.
// Shapes:  inputs[i] [...] -> [...], all of one size and dtype; strides as inputs[0] where it is
//          dense without gaps.
// Devices: inputs on any devices, none has to be on `destination`. All sparse COO: the result is
//          sparse; some sparse: it is dense.
// Grad:    none is recorded; a fresh result does not require grad. Inputs are never written.
// Throws:  c10::Error if there are no inputs, or sizes, dtypes or sparse dims differ; the
//          message names the index and both values.
at::Tensor reduce_add(at::TensorList inputs, c10::Device destination,
                      const ReduceAddOptions& options = {});

// As reduce_add, but writes into `output` and returns it. The version counter of output rises.
// Throws:  also if `output` is sparse, does not fit, or overlaps an input, before anything is
//          written.
at::Tensor reduce_add_out(at::TensorList inputs, const at::Tensor& output,
                          const ReduceAddOptions& options = {});

}  // namespace lockstep::comm
