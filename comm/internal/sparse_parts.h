// SPDX-License-Identifier: Apache-2.0
// sparse_parts: a sparse COO tensor as the two dense tensors it is made of, and back.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "comm/device_collectives.h"

namespace lockstep::comm::internal {

// The parts of a sparse COO tensor; both dense, coalesced or not.
struct SparseParts {
  at::Tensor indices;  // [sparse dims, entries]
  at::Tensor values;   // [entries, dense dims...]
};

SparseParts take_apart(const at::Tensor& sparse);

// Returns a sparse tensor of these parts, with the sizes and the coalesced flag of `like`.
at::Tensor put_together(const SparseParts& parts, const at::Tensor& like);

// Returns `sparse` itself if it is on `device`, else a copy there, sent as its two parts.
at::Tensor sparse_to_device(const at::Tensor& sparse, c10::Device device,
                            DeviceCollectives& collectives);

}  // namespace lockstep::comm::internal
