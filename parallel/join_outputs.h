// SPDX-License-Identifier: Apache-2.0
// join_outputs.h: how the replicas' output tensors are joined. Internal to parallel.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <vector>

#include "parallel/arguments.h"

namespace lockstep::parallel::internal {

// One tensor of the result, as the replicas returned it.
struct OutputParts {
  // By replica, all undefined or none; replica 0's alone if the output is taken whole.
  std::vector<at::Tensor> parts;
  int64_t dim = 0;       // along which they are joined
  bool scalars = false;  // without dimension: stacked to a vector
  bool whole = false;    // not joined
};

// Turns the tensors by replica and position into parts by position. `placements` are those of the
// result, `dims` the caller's choice for each position: empty, or one for each.
// Throws:  c10::Error naming the output (if there are several), the replica and the shapes if parts
//          cannot be joined, or if there are more or fewer dims than outputs.
std::vector<OutputParts> collect_outputs(const char* name,
                                         const std::vector<std::vector<at::Tensor>>& by_replica,
                                         const std::vector<Placement>& placements,
                                         c10::ArrayRef<int64_t> dims, int64_t default_dim);

// The parts' sizes along the dim they are joined along; ones for scalars.
std::vector<int64_t> sizes_of(const OutputParts& output);

}  // namespace lockstep::parallel::internal
