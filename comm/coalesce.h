// SPDX-License-Identifier: Apache-2.0
// coalesce: which tensors travel together. Many small tensors cost many messages; the coalesced
// verbs pack tensors of one dtype into flat buffers and send each buffer once.
//   CoalesceOptions options;
//   options.buffer_bytes = 1024 * 1024;
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "comm/device_collectives.h"

namespace lockstep::comm {

struct CoalesceOptions {
  int64_t buffer_bytes = 10 * 1024 * 1024;   // a buffer is full once it holds this much
  DeviceCollectives* collectives = nullptr;  // null: default_collectives()
};

// Tensors that share one flat buffer.
struct CoalesceGroup {
  c10::ScalarType dtype;
  std::vector<int64_t> indices;  // positions in the grouped list, ascending
  int64_t bytes = 0;
};

// Splits `tensors` into groups of one dtype each. A group closes as soon as its bytes reach
// `buffer_bytes`; the open groups follow at the end, in the order in which their dtypes appeared.
// Undefined entries are in no group; tensors without elements are in one like all others. A tensor
// of at least `alone_bytes` is a group of its own.
// Throws:  c10::Error if `buffer_bytes` or `alone_bytes` is not positive.
std::vector<CoalesceGroup> coalesce_groups(
    at::TensorList tensors, int64_t buffer_bytes,
    int64_t alone_bytes = std::numeric_limits<int64_t>::max());

}  // namespace lockstep::comm
