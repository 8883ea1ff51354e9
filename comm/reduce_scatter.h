// SPDX-License-Identifier: Apache-2.0
// reduce_scatter: each device gets its part of the sum, or the mean, of what all devices hold.
//   auto parts = lockstep::comm::reduce_scatter(gradients);  // parts[i] on the device of rank i
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "comm/device_collectives.h"

namespace lockstep::comm {

struct ReduceScatterOptions {
  Reduction reduction = Reduction::kSum;
  DeviceCollectives* collectives = nullptr;  // null: the default engine
};

// Returns fresh tensors; result i is part i, along dim 0, of the sum of the k inputs, on the device
// of inputs[i].
// Shapes:  inputs [k * n, ...] -> results [n, ...].
// Devices: any; the same device may stand in the list several times.
// Grad:    none is recorded.
// Throws:  c10::Error for an empty list, for a dim 0 that k does not divide, and, naming the index,
//          for an undefined or sparse tensor, another size or dtype, and the mean of integers or
//          bools.
// Threads: safe.
std::vector<at::Tensor> reduce_scatter(at::TensorList inputs,
                                       const ReduceScatterOptions& options = {});

}  // namespace lockstep::comm
