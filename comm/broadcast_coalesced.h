// SPDX-License-Identifier: Apache-2.0
// broadcast_coalesced: copies many tensors to many devices with few messages. Use the _out form
// when the copies exist already, as for replicas that are kept between steps.
//   auto rows = lockstep::comm::broadcast_coalesced({weight, bias}, devices);
//   rows[1][0];  // the copy of weight on devices[1]
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

#include <vector>

#include "comm/coalesce.h"

namespace lockstep::comm {

// Returns one row of tensors per entry of `devices`, in order. The row of the first entry on the
// tensors' device holds the tensors themselves; every other row is fresh.
// Shapes:  tensors[t] [...] -> rows[i][t] [...]; dtype, layout, strides of dense tensors without
//          gaps, and the coalesced flag of sparse ones are kept, tensors with gaps become
//          contiguous.
// Devices: tensors all on one device; rows[i] on devices[i]. Sparse COO tensors travel as their
//          indices and values. Undefined entries stay undefined at their positions.
// Grad:    none is recorded; fresh tensors do not require grad and have a version counter each.
// Throws:  c10::Error if `devices` is empty or wrong, or a tensor is on another device than the
//          first or of another layout; the message names its index.
std::vector<std::vector<at::Tensor>> broadcast_coalesced(at::TensorList tensors,
                                                         c10::ArrayRef<c10::Device> devices,
                                                         const CoalesceOptions& options = {});

// Copies tensors[t] into copies[i][t] for every i and t. A copy that is the tensor itself, or
// shares its memory exactly, is left alone; of every other one the version counter rises.
// Shapes:  tensors[t] [...] -> copies[i][t] [...]; sizes and dtype agree, strides may differ.
// Devices: any, dense; the tensors all on one device, and each row of copies on one device.
// Grad:    none is recorded; requires_grad of the copies is unchanged.
// Throws:  c10::Error, before anything is written, if a row or an entry does not fit; the
//          message names its indices.
void broadcast_coalesced_out(at::TensorList tensors, c10::ArrayRef<std::vector<at::Tensor>> copies,
                             const CoalesceOptions& options = {});

}  // namespace lockstep::comm
