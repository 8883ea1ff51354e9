// SPDX-License-Identifier: Apache-2.0
// all_gather: every device gets what all devices hold, one after another.
//   auto wholes = lockstep::comm::all_gather(parts);  // the inverse of splitting along dim 0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "comm/device_collectives.h"

namespace lockstep::comm {

struct AllGatherOptions {
  DeviceCollectives* collectives = nullptr;  // null: the default engine
};

// Returns the inputs joined along dim 0, in list order, once for each input: result i is fresh, on
// the device of inputs[i].
// Shapes:  k inputs [n, ...] -> results [k * n, ...], contiguous.
// Devices: any; the same device may stand in the list several times.
// Grad:    none is recorded.
// Throws:  c10::Error for an empty list, and, naming the index, for an undefined or sparse tensor,
//          one without dimensions, and another size or dtype.
// Threads: safe.
std::vector<at::Tensor> all_gather(at::TensorList inputs, const AllGatherOptions& options = {});

}  // namespace lockstep::comm
