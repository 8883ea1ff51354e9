// SPDX-License-Identifier: Apache-2.0
#include "comm/broadcast_coalesced.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "comm/device_list.h"
#include "comm/internal/checks.h"
#include "comm/internal/copy_plan.h"
#include "comm/internal/flat_buffer.h"
#include "comm/internal/plain_memory.h"
#include "comm/internal/sparse_parts.h"

namespace lockstep::comm {
namespace {

constexpr const char* kOp = "broadcast_coalesced";

// The device of the defined tensors, which must agree; none if all are undefined.
std::optional<c10::Device> common_device(at::TensorList tensors) {
  std::optional<c10::Device> home;
  for (size_t t = 0; t < tensors.size(); ++t) {
    if (!tensors[t].defined()) {
      continue;
    }
    internal::check_dense_or_sparse(kOp, "tensor", tensors[t], static_cast<int64_t>(t));
    const c10::Device device = tensors[t].device();
    TORCH_CHECK(!home || device == *home, "[", kOp, "] expected all tensors on ", *home, ", got ",
                device, ", at index ", t);
    home = device;
  }
  return home;
}

// The dense tensors that travel: a sparse tensor gives two, an undefined one none.
std::vector<at::Tensor> dense_parts(at::TensorList tensors) {
  std::vector<at::Tensor> parts;
  parts.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) {
      continue;
    }
    if (tensor.is_sparse()) {
      internal::SparseParts sparse = internal::take_apart(tensor);
      parts.push_back(std::move(sparse.indices));
      parts.push_back(std::move(sparse.values));
    } else {
      parts.push_back(tensor);
    }
  }
  return parts;
}

// The inverse of dense_parts, with the layouts and gaps of `like`.
std::vector<at::Tensor> from_parts(const std::vector<at::Tensor>& parts, at::TensorList like) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(like.size());
  auto part = parts.begin();
  for (const at::Tensor& shape : like) {
    if (!shape.defined()) {
      tensors.emplace_back();
    } else if (shape.is_sparse()) {
      tensors.push_back(internal::put_together({part[0], part[1]}, shape));
      part += 2;
    } else {
      tensors.push_back(*part++);
    }
  }
  return tensors;
}

// True if the memory of the only member can be sent as it is, so that nothing has to be packed.
bool is_flat_by_itself(const std::vector<at::Tensor>& members) {
  return members.size() == 1 && internal::is_plain_memory(members[0]);
}

// One flat buffer per device of `places`. The first one at home is `flat` itself if it is packed,
// so that a copy on the tensors' own device costs one pass over memory; only buffers for other
// devices are messages. Those of a tensor alone wait in `alone`, to be sent together.
std::vector<at::Tensor> flat_copies(const std::vector<at::Tensor>& members,
                                    c10::ArrayRef<c10::Device> places,
                                    DeviceCollectives& collectives,
                                    std::vector<BroadcastCall>& alone) {
  bool flat_taken = is_flat_by_itself(members);
  const at::Tensor flat = flat_taken ? members[0].as_strided({members[0].numel()}, {1})
                                     : internal::flatten(members, members);
  std::vector<at::Tensor> copies;
  std::vector<at::Tensor> remote;
  for (const c10::Device place : places) {
    if (place != flat.device()) {
      copies.push_back(at::empty_like(flat, flat.options().device(place)));
      remote.push_back(copies.back());
    } else {
      copies.push_back(flat_taken ? flat.clone() : flat);
      flat_taken = true;
    }
  }
  if (remote.empty()) {
    return copies;
  }
  if (members.size() == 1) {
    alone.push_back({flat, std::move(remote)});
  } else {
    collectives.broadcast(flat, remote);
  }
  return copies;
}

void copy_to_remote_rows(at::TensorList tensors, c10::ArrayRef<std::vector<at::Tensor>> copies,
                         const std::vector<size_t>& rows, const CoalesceOptions& options) {
  std::vector<c10::Device> places;
  for (const size_t row : rows) {
    places.push_back(copies[row][0].device());
  }
  DeviceCollectives& collectives =
      internal::choose_collectives(options.collectives, tensors[0].device(), places);
  std::vector<BroadcastCall> alone;
  for (const CoalesceGroup& group :
       coalesce_groups(tensors, options.buffer_bytes, collectives.unpacked_bytes())) {
    const std::vector<at::Tensor> members = internal::members_of(group, tensors);
    if (members.size() == 1) {  // straight into its copies, without a buffer on either side
      BroadcastCall& call = alone.emplace_back(BroadcastCall{members[0], {}});
      for (const size_t row : rows) {
        call.destinations.push_back(internal::members_of(group, copies[row])[0]);
      }
      continue;
    }
    const at::Tensor flat = internal::flatten(members, members);
    std::vector<at::Tensor> arrived;
    for (const c10::Device place : places) {
      arrived.push_back(at::empty_like(flat, flat.options().device(place)));
    }
    collectives.broadcast(flat, arrived);
    for (size_t r = 0; r < rows.size(); ++r) {
      at::_foreach_copy_(internal::members_of(group, copies[rows[r]]),
                         internal::unflatten(arrived[r], members));
    }
  }
  collectives.broadcast_grouped(alone);
}

}  // namespace

std::vector<std::vector<at::Tensor>> broadcast_coalesced(at::TensorList tensors,
                                                         c10::ArrayRef<c10::Device> devices,
                                                         const CoalesceOptions& options) {
  const std::vector<c10::Device> places = normalize_devices(kOp, devices);
  const c10::Device home = common_device(tensors).value_or(places[0]);
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> parts = dense_parts(tensors);
  const size_t home_row =
      static_cast<size_t>(std::find(places.begin(), places.end(), home) - places.begin());
  std::vector<c10::Device> fresh_places = places;
  if (home_row < places.size()) {
    fresh_places.erase(fresh_places.begin() + static_cast<std::ptrdiff_t>(home_row));
  }
  std::vector<std::vector<at::Tensor>> fresh_parts(fresh_places.size(),
                                                   std::vector<at::Tensor>(parts.size()));
  DeviceCollectives& collectives =
      internal::choose_collectives(options.collectives, home, fresh_places);
  const std::vector<CoalesceGroup> groups =
      coalesce_groups(parts, options.buffer_bytes, collectives.unpacked_bytes());
  std::vector<BroadcastCall> alone;
  for (const CoalesceGroup& group : groups) {
    if (fresh_places.empty()) {
      break;
    }
    const std::vector<at::Tensor> members = internal::members_of(group, parts);
    const std::vector<at::Tensor> copies = flat_copies(members, fresh_places, collectives, alone);
    for (size_t row = 0; row < copies.size(); ++row) {
      std::vector<at::Tensor> unpacked = internal::unflatten(copies[row], members);
      for (size_t m = 0; m < members.size(); ++m) {
        fresh_parts[row][static_cast<size_t>(group.indices[m])] = std::move(unpacked[m]);
      }
    }
  }

  collectives.broadcast_grouped(alone);

  std::vector<std::vector<at::Tensor>> rows;
  rows.reserve(places.size());
  for (const std::vector<at::Tensor>& row : fresh_parts) {
    rows.push_back(from_parts(row, tensors));
  }
  if (home_row < places.size()) {
    rows.insert(rows.begin() + static_cast<std::ptrdiff_t>(home_row), tensors.vec());
  }
  return rows;
}

void broadcast_coalesced_out(at::TensorList tensors, c10::ArrayRef<std::vector<at::Tensor>> copies,
                             const CoalesceOptions& options) {
  const at::NoGradGuard no_grad;
  const internal::CopyPlan plan = internal::plan_copies("broadcast_coalesced_out", tensors, copies);
  internal::copy_local(plan);
  if (!plan.remote_rows.empty()) {
    copy_to_remote_rows(tensors, copies, plan.remote_rows, options);
  }
}

}  // namespace lockstep::comm
