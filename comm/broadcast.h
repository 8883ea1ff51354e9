// SPDX-License-Identifier: Apache-2.0
// broadcast: copies one tensor to many devices. For lists of tensors use broadcast_coalesced
// (broadcast_coalesced.h, included here); inside a differentiable forward use
// autograd_fns/broadcast.h.
//   auto copies = lockstep::comm::broadcast(weight, devices);
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

#include <vector>

#include "comm/broadcast_coalesced.h"
#include "comm/device_collectives.h"

namespace lockstep::comm {

struct BroadcastOptions {
  DeviceCollectives* collectives = nullptr;  // null: default_collectives()
};

// Returns one tensor per entry of `devices`, in order. The first entry on the source's device is
// `tensor` itself; every other one is a fresh tensor, also on the same device.
// Shapes:  tensor [...] -> outputs[i] [...], with the source's memory format.
// Devices: tensor on any device, dense or sparse COO; outputs[i] on devices[i].
// Grad:    none is recorded; fresh outputs do not require grad.
// Throws:  c10::Error if `tensor` is undefined or of another layout, or `devices` is empty or
//          wrong.
std::vector<at::Tensor> broadcast(const at::Tensor& tensor, c10::ArrayRef<c10::Device> devices,
                                  const BroadcastOptions& options = {});

// Copies `tensor` into each of `outputs` and returns them. An output that is `tensor` is left
// alone.
// Shapes:  tensor [...] -> outputs[i] [...]; sizes and dtype agree.
// Devices: any; tensor and outputs dense.
// Grad:    none is recorded; the version counter of each written output rises.
// Throws:  c10::Error, before anything is written, if there are no outputs or one does not fit;
//          the message names its index.
std::vector<at::Tensor> broadcast_out(const at::Tensor& tensor, at::TensorList outputs,
                                      const BroadcastOptions& options = {});

}  // namespace lockstep::comm
