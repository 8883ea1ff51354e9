// SPDX-License-Identifier: Apache-2.0
#include "comm/reduce_add_coalesced.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "comm/device_list.h"
#include "comm/internal/checks.h"
#include "comm/internal/flat_buffer.h"
#include "comm/internal/pack_add.h"
#include "comm/internal/sum.h"
#include "comm/internal/sum_into.h"

namespace lockstep::comm {
namespace {

constexpr const char* kOp = "reduce_add_coalesced";
using Rows = c10::ArrayRef<std::vector<at::Tensor>>;

// The defined entries of one column, with the same name in every row.
std::vector<at::Tensor> defined_column(Rows inputs, size_t t) {
  std::vector<at::Tensor> column;
  column.reserve(inputs.size());
  for (const std::vector<at::Tensor>& row : inputs) {
    if (row[t].defined()) {
      column.push_back(row[t]);
    }
  }
  return column;
}

// Checks one column. True if it can travel in flat buffers: defined and dense in every row.
bool check_column(Rows inputs, size_t t) {
  const at::Tensor* first = nullptr;
  bool groupable = true;
  for (size_t row = 0; row < inputs.size(); ++row) {
    const at::Tensor& input = inputs[row][t];
    if (!input.defined()) {
      groupable = false;
      continue;
    }
    internal::check_dense_or_sparse(kOp, "input", input, static_cast<int64_t>(t));
    first = first == nullptr ? &input : first;
    internal::check_summand(kOp, *first, input,
                            [&] { return c10::str("row ", row, ", index ", t); });
    groupable = groupable && !input.is_sparse();
  }
  return groupable;
}

// The device of all members of a group, if they share one.
std::optional<c10::Device> common_device(Rows inputs, const CoalesceGroup& group) {
  const c10::Device first = inputs[0][static_cast<size_t>(group.indices[0])].device();
  for (const std::vector<at::Tensor>& row : inputs) {
    for (const int64_t index : group.indices) {
      if (row[static_cast<size_t>(index)].device() != first) {
        return std::nullopt;
      }
    }
  }
  return first;
}

// On the CPU each sum goes straight into its place in the flat result; nothing is packed or sent.
std::vector<at::Tensor> sum_in_place(Rows inputs, const CoalesceGroup& group,
                                     const std::vector<at::Tensor>& like) {
  int64_t count = 0;
  for (const at::Tensor& tensor : like) {
    count += tensor.numel();
  }
  const at::Tensor flat = at::empty({count}, like[0].options());
  std::vector<at::Tensor> sums = internal::unflatten(flat, like);
  std::vector<at::Tensor> column(inputs.size());
  for (size_t m = 0; m < sums.size(); ++m) {
    for (size_t row = 0; row < inputs.size(); ++row) {
      column[row] = inputs[row][static_cast<size_t>(group.indices[m])];
    }
    internal::sum_into(column, sums[m]);
  }
  return sums;
}

// The same by one kernel on an accelerator; none if it has no such kernel or that cannot do it.
std::vector<at::Tensor> sum_by_kernel(Rows inputs, const CoalesceGroup& group,
                                      const std::vector<at::Tensor>& like) {
  std::vector<std::vector<at::Tensor>> rows;
  for (const std::vector<at::Tensor>& row : inputs) {
    rows.push_back(internal::members_of(group, row));
  }
  const at::Tensor flat = internal::pack_add(rows, like);
  return flat.defined() ? internal::unflatten(flat, like) : std::vector<at::Tensor>();
}

std::vector<at::Tensor> sum_packed(Rows inputs, const CoalesceGroup& group,
                                   const std::vector<at::Tensor>& like, c10::Device destination,
                                   DeviceCollectives& collectives) {
  std::vector<at::Tensor> flats;
  for (const std::vector<at::Tensor>& row : inputs) {
    flats.push_back(internal::flatten(internal::members_of(group, row), like));
  }
  if (flats.size() == 1 && flats[0].device() == destination) {
    return internal::unflatten(flats[0], like);
  }
  return internal::unflatten(internal::sum_fresh(flats, destination, collectives), like);
}

}  // namespace

std::vector<at::Tensor> reduce_add_coalesced(c10::ArrayRef<std::vector<at::Tensor>> inputs,
                                             c10::Device destination,
                                             const CoalesceOptions& options) {
  const c10::Device home = normalize_device(kOp, destination);
  TORCH_CHECK(!inputs.empty(), "[", kOp, "] expected at least one row of inputs, got none");
  const size_t width = inputs[0].size();
  for (size_t row = 0; row < inputs.size(); ++row) {
    TORCH_CHECK(inputs[row].size() == width, "[", kOp, "] expected ", width, " inputs, got ",
                inputs[row].size(), ", at row ", row);
  }
  std::vector<at::Tensor> groupable(width);
  std::vector<size_t> alone;
  std::vector<c10::Device> places;
  for (size_t t = 0; t < width; ++t) {
    if (check_column(inputs, t)) {
      groupable[t] = inputs[0][t];
    } else {
      alone.push_back(t);
    }
    for (const std::vector<at::Tensor>& row : inputs) {
      if (row[t].defined() && (places.empty() || places.back() != row[t].device())) {
        places.push_back(row[t].device());
      }
    }
  }

  const at::NoGradGuard no_grad;
  DeviceCollectives& collectives = internal::choose_collectives(options.collectives, home, places);
  std::vector<at::Tensor> sums(width);
  std::vector<ReduceAddCall> unpacked;
  const bool has_kernel = internal::has_pack_add(home.type());
  const bool all_at_home =
      std::all_of(places.begin(), places.end(), [&](c10::Device place) { return place == home; });
  // One kernel for many large tensors beats an addition for each.
  const int64_t alone_bytes = has_kernel && all_at_home ? std::numeric_limits<int64_t>::max()
                                                        : collectives.unpacked_bytes();
  for (const CoalesceGroup& group : coalesce_groups(groupable, options.buffer_bytes, alone_bytes)) {
    const std::vector<at::Tensor> like = internal::members_of(group, groupable);
    std::vector<at::Tensor> group_sums;
    if ((home.is_cpu() || has_kernel) && common_device(inputs, group) == home) {
      group_sums =
          home.is_cpu() ? sum_in_place(inputs, group, like) : sum_by_kernel(inputs, group, like);
    }
    if (group_sums.empty() && like.size() == 1 && inputs.size() > 1) {
      const size_t t = static_cast<size_t>(group.indices[0]);
      sums[t] = at::empty_like(like[0], like[0].options().device(home), at::MemoryFormat::Preserve);
      unpacked.push_back({defined_column(inputs, t), sums[t]});
      continue;
    }
    if (group_sums.empty()) {
      group_sums = sum_packed(inputs, group, like, home, collectives);
    }
    for (size_t m = 0; m < group_sums.size(); ++m) {
      sums[static_cast<size_t>(group.indices[m])] = std::move(group_sums[m]);
    }
  }
  collectives.reduce_add_grouped(unpacked);
  for (const size_t t : alone) {
    const std::vector<at::Tensor> column = defined_column(inputs, t);
    if (!column.empty()) {
      sums[t] = internal::sum_fresh(column, home, collectives);
    }
  }
  return sums;
}

}  // namespace lockstep::comm
