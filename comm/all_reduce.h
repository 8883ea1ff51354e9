// SPDX-License-Identifier: Apache-2.0
// all_reduce: every device gets the sum, or the mean, of what all devices hold.
//   lockstep::comm::all_reduce_out(gradients, gradients);  // in place, one tensor per device
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "comm/device_collectives.h"

namespace lockstep::comm {

struct AllReduceOptions {
  Reduction reduction = Reduction::kSum;
  DeviceCollectives* collectives = nullptr;  // null: the default engine
};

// Returns the sum of the inputs once for each input: result i is fresh, on the device of inputs[i].
// Shapes:  all inputs and results equal.
// Devices: any; the same device may stand in the list several times.
// Grad:    none is recorded.
// Throws:  c10::Error for an empty list, and, naming the index, for an undefined or sparse tensor,
//          another size or dtype, and the mean of integers or bools.
// Threads: safe.
std::vector<at::Tensor> all_reduce(at::TensorList inputs, const AllReduceOptions& options = {});

// The same into outputs[i], which may be inputs[i] itself; returns the outputs.
// Throws:  as all_reduce, and for another number of outputs, an output of another size, dtype or
//          device, or one that overlaps another tensor of the call; nothing is written then.
std::vector<at::Tensor> all_reduce_out(at::TensorList inputs, at::TensorList outputs,
                                       const AllReduceOptions& options = {});

}  // namespace lockstep::comm
