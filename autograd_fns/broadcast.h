// SPDX-License-Identifier: Apache-2.0
// broadcast: differentiable copies of many tensors on many devices.
// Use it to give every replica its parameters. To move tensors without gradients use
// comm/broadcast_coalesced.h.
//   auto copies = lockstep::autograd_fns::broadcast({weight, bias}, {dev0, dev1});
//   copies[2];  // weight on dev1: entry (device 1) * (2 tensors) + (tensor 0)
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

#include <vector>

#include "comm/coalesce.h"

namespace lockstep::autograd_fns {

// Returns k * n tensors for k devices and n tensors, device-major: entry i * n + t is tensors[t] on
// devices[i]. No tensors give no outputs; an undefined tensor gives undefined outputs.
// The outputs for the first entry on the tensors' device share the tensors' memory and version
// counters: where nothing is recorded they are the tensors themselves, else views of them. All
// other outputs are fresh.
// Shapes:  tensors[t] [...] -> outputs[i * n + t] [...].
// Devices: tensors all on one device, any; outputs as said.
// Grad:    backward of broadcast is reduce_add_coalesced onto the tensors' device, in device order.
//          One node per call. Outputs of tensors that need no grad need none, and in no-grad mode
//          no output does. Writing in place into a view that was recorded raises autograd's error;
//          writing into a tensor after its output was saved for backward makes backward throw.
//          `options.collectives`, if given, must outlive the graph.
// Throws:  c10::Error as comm::broadcast_coalesced.
std::vector<at::Tensor> broadcast(at::TensorList tensors, c10::ArrayRef<c10::Device> devices,
                                  const comm::CoalesceOptions& options = {});

}  // namespace lockstep::autograd_fns
