// SPDX-License-Identifier: Apache-2.0
// reduce_add_coalesced: sums lists of tensors, one list per device, with few messages. It is what
// the gradients of replicas need; for one tensor per device use reduce_add.h.
//   auto grads = lockstep::comm::reduce_add_coalesced({grads0, grads1}, c10::Device("cuda:0"));
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

#include <vector>

#include "comm/coalesce.h"

namespace lockstep::comm {

// Returns sums[t] = inputs[0][t] + inputs[1][t] + ..., each as reduce_add would give it, but always
// fresh, also with one row. A position that is undefined in some rows counts as zero there;
// undefined in all rows it stays undefined.
// Shapes:  inputs[i][t] [...] -> sums[t] [...]; over i, sizes and dtype agree.
// Devices: inputs on any devices; sums on `destination`. Sparse COO in all rows stays sparse, in
//          some rows it becomes dense.
// Grad:    none is recorded; sums do not require grad and have a version counter each.
// Throws:  c10::Error if there are no rows, rows differ in length, or entries differ in size,
//          dtype or sparse dims; the message names row, index and both values.
std::vector<at::Tensor> reduce_add_coalesced(c10::ArrayRef<std::vector<at::Tensor>> inputs,
                                             c10::Device destination,
                                             const CoalesceOptions& options = {});

}  // namespace lockstep::comm
