// SPDX-License-Identifier: Apache-2.0
#include "parallel/replica_call.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>

#include "comm/scatter.h"

namespace lockstep::parallel::internal {

std::string ReplicaCall::name_of(size_t index) const {
  const auto after = std::upper_bound(first_tensor.begin(), first_tensor.end(), index);
  const size_t argument = static_cast<size_t>(after - first_tensor.begin()) - 1;
  return is_tensor[argument]
             ? c10::str("input ", argument)
             : c10::str("tensor ", index - first_tensor[argument], " of input ", argument);
}

std::vector<size_t> split_tensors(const ReplicaCall& call) {
  std::vector<size_t> indices;
  for (size_t j = 0; j < call.tensors.size(); ++j) {
    if (call.tensors[j].defined() && !call.placements[j].whole) {
      indices.push_back(j);
    }
  }
  return indices;
}

std::vector<int64_t> batch_sizes(const char* name, const ReplicaCall& call, int64_t default_dim,
                                 size_t num_devices) {
  const std::vector<size_t> split = split_tensors(call);
  if (split.empty()) {
    return {0};
  }
  int64_t rows = 0;
  for (const size_t j : split) {
    const at::Tensor& tensor = call.tensors[j];
    const int64_t dim = call.placements[j].dim.value_or(default_dim);
    const int64_t rank = tensor.dim();
    TORCH_CHECK(rank > 0, "[", name, "] ", call.name_of(j),
                " has no dimension to be split along; to_all_replicas() passes it whole");
    TORCH_CHECK(dim >= -rank && dim < rank, "[", name, "] expected dim from ", -rank, " to ",
                rank - 1, " for ", call.name_of(j), " of shape ", tensor.sizes(), ", got ", dim);
    const int64_t size = tensor.size(dim);
    TORCH_CHECK(j == split[0] || size == rows, "[", name, "] ", call.name_of(j), " has size ", size,
                " along dim ", dim, ", but ", call.name_of(split[0]), " has ", rows);
    rows = size;
  }
  return comm::even_sizes(rows, static_cast<int64_t>(num_devices));
}

}  // namespace lockstep::parallel::internal
