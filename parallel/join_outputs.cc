// SPDX-License-Identifier: Apache-2.0
#include "parallel/join_outputs.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <string>
#include <utility>

namespace lockstep::parallel::internal {
namespace {

int64_t wrap_dim(int64_t dim, int64_t rank) { return dim < 0 ? dim + rank : dim; }

// Throws unless `part`, of replica `replica`, fits to the first one.
void check_part(const std::string& prefix, const at::Tensor& part, const at::Tensor& first,
                size_t replica, int64_t dim) {
  TORCH_CHECK(first.defined(), prefix, "replica 0 returned an undefined tensor");
  TORCH_CHECK(part.defined(), prefix, "replica ", replica, " returned an undefined tensor");
  TORCH_CHECK(part.dtype() == first.dtype(), prefix, "replica ", replica, " returned ",
              part.dtype(), " but replica 0 ", first.dtype());
  const auto cannot_join = [&] {
    return c10::str(prefix, "cannot join the outputs along dim ", dim, ": replica ", replica,
                    " returned shape ", part.sizes());
  };
  const int64_t rank = first.dim();
  TORCH_CHECK(part.dim() == rank, cannot_join(), " but replica 0 ", first.sizes());
  if (rank == 0) {
    return;
  }
  TORCH_CHECK(dim >= -rank && dim < rank, cannot_join(), ", whose dims are ", -rank, " to ",
              rank - 1);
  for (int64_t d = 0; d < rank; ++d) {
    TORCH_CHECK(d == wrap_dim(dim, rank) || part.size(d) == first.size(d), cannot_join(),
                " but replica 0 ", first.sizes());
  }
}

}  // namespace

std::vector<OutputParts> collect_outputs(const char* name,
                                         const std::vector<std::vector<at::Tensor>>& by_replica,
                                         const std::vector<Placement>& placements,
                                         c10::ArrayRef<int64_t> dims, int64_t default_dim) {
  const size_t num_outputs = placements.size();
  TORCH_CHECK(dims.empty() || dims.size() == num_outputs, "[", name,
              "] DataParallelOptions::output_dims has ", dims.size(),
              " entries, but forward returned ", num_outputs, " tensors");
  std::vector<OutputParts> outputs(num_outputs);
  for (size_t k = 0; k < num_outputs; ++k) {
    const std::string prefix =
        num_outputs == 1 ? c10::str("[", name, "] ") : c10::str("[", name, "] output ", k, ": ");
    OutputParts& output = outputs[k];
    for (const auto& tensors : by_replica) {
      output.parts.push_back(tensors[k]);
    }
    output.whole = placements[k].whole;
    if (output.whole) {
      output.parts.resize(1);
      continue;
    }
    output.dim = placements[k].dim.value_or(dims.empty() ? default_dim : dims[k]);
    const at::Tensor& first = output.parts[0];
    for (size_t r = 0; r < output.parts.size(); ++r) {
      if (first.defined() || output.parts[r].defined()) {
        check_part(prefix, output.parts[r], first, r, output.dim);
      }
    }
    if (!first.defined()) {
      continue;
    }
    output.scalars = first.dim() == 0;
    output.dim = output.scalars ? 0 : wrap_dim(output.dim, first.dim());
  }
  return outputs;
}

std::vector<int64_t> sizes_of(const OutputParts& output) {
  std::vector<int64_t> sizes;
  for (const at::Tensor& part : output.parts) {
    sizes.push_back(output.scalars ? 1 : part.size(output.dim));
  }
  return sizes;
}

}  // namespace lockstep::parallel::internal
