// SPDX-License-Identifier: Apache-2.0
// scatter: splits one tensor along a dimension over many devices; gather.h is the inverse. Inside a
// differentiable forward use autograd_fns/scatter.h.
//   auto pieces = lockstep::comm::scatter(batch, {c10::Device("cuda:0"), c10::Device("cuda:1")});
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/device_collectives.h"

namespace lockstep::comm {

struct ScatterOptions {
  // One per device; absent: chunk_sizes(n, devices).
  std::optional<std::vector<int64_t>> chunk_sizes;
  int64_t dim = 0;  // negative counts from the end
  // Stream i, on device i, carries copy i, and the device's current stream waits for it. Missing
  // or empty entries mean the current stream.
  std::vector<std::optional<c10::Stream>> streams;
  DeviceCollectives* collectives = nullptr;  // null: default_collectives()
};

// Returns how `n` rows fall into at most `parts` chunks of ceil(n / parts) rows, the last one
// shorter: (9, 4) -> {3, 3, 3}, (10, 4) -> {3, 3, 3, 1}; n = 0 gives `parts` zeros.
// Throws:  c10::Error if n is negative or parts is not positive.
std::vector<int64_t> chunk_sizes(int64_t n, int64_t parts);

// Returns how `n` rows fall into min(n, parts) chunks that differ by at most one row, larger first:
// (7, 3) -> {3, 2, 2}; n = 0 gives {0}.
// Throws:  c10::Error if n is negative or parts is not positive.
std::vector<int64_t> even_sizes(int64_t n, int64_t parts);

// Splits `input` along `options.dim`, piece i for devices[i]. A piece whose device is the input's
// is a view of it: same memory, same version counter. All others are fresh, with the input's memory
// format.
// Shapes:  input [..., N, ...] -> pieces[i] [..., N_i, ...]; sum of N_i = N.
// Devices: input on any device, dense; pieces[i] on devices[i]. Without chunk_sizes few rows can
//          give fewer pieces than devices.
// Grad:    none is recorded; no piece requires grad.
// Throws:  c10::Error if `input` has no dimension, `devices` is empty or wrong, or dim,
//          chunk_sizes or streams do not fit.
std::vector<at::Tensor> scatter(const at::Tensor& input, c10::ArrayRef<c10::Device> devices,
                                const ScatterOptions& options = {});

// Splits `input` into existing `outputs`, whose sizes along `options.dim` say how, and returns
// them. An output that is the view scatter would give is left alone; of every other one the version
// rises.
// Throws:  c10::Error, before anything is written, if chunk_sizes are given too, or an output
//          does not fit; the message names its index.
std::vector<at::Tensor> scatter_out(const at::Tensor& input, at::TensorList outputs,
                                    const ScatterOptions& options = {});

}  // namespace lockstep::comm
