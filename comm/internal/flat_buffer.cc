// SPDX-License-Identifier: Apache-2.0
#include "comm/internal/flat_buffer.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <cstring>

#include "comm/internal/plain_memory.h"

namespace lockstep::comm::internal {
namespace {

constexpr int64_t kGrainBytes =
    128 * 1024;  // bytes of copying that are worth a thread of their own

// On the CPU, and its bytes, front to back, are its elements in the memory order of `like`.
bool is_memory_like(const at::Tensor& tensor, const at::Tensor& like) {
  return tensor.is_cpu() && is_plain_memory(tensor) && tensor.strides() == like.strides();
}

at::Tensor in_memory_order(const at::Tensor& tensor, const at::Tensor& like) {
  if (!like.is_non_overlapping_and_dense()) {
    return tensor.reshape({-1});
  }
  if (tensor.strides() == like.strides()) {
    return tensor.as_strided({tensor.numel()}, {1});
  }
  at::Tensor ordered = at::empty_strided(like.sizes(), like.strides(), tensor.options());
  ordered.copy_(tensor);
  return ordered.as_strided({tensor.numel()}, {1});
}

at::Tensor flatten_memory(at::TensorList tensors) {
  std::vector<int64_t> starts(tensors.size());
  int64_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    starts[i] = bytes;
    bytes += static_cast<int64_t>(tensors[i].nbytes());
  }
  const int64_t item = static_cast<int64_t>(tensors[0].element_size());
  at::Tensor flat = at::empty({bytes / item}, tensors[0].options());
  char* const out = static_cast<char*>(flat.mutable_data_ptr());
  const int64_t count = static_cast<int64_t>(tensors.size());
  const int64_t grain = std::max<int64_t>(1, kGrainBytes * count / std::max<int64_t>(bytes, 1));
  at::parallel_for(0, count, grain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      if (tensors[i].numel() != 0) {
        std::memcpy(out + starts[i], tensors[i].const_data_ptr(), tensors[i].nbytes());
      }
    }
  });
  return flat;
}

}  // namespace

std::vector<at::Tensor> members_of(const CoalesceGroup& group, at::TensorList tensors) {
  std::vector<at::Tensor> members;
  members.reserve(group.indices.size());
  for (const int64_t index : group.indices) {
    members.push_back(tensors[static_cast<size_t>(index)]);
  }
  return members;
}

at::Tensor flatten(at::TensorList tensors, at::TensorList like) {
  const at::NoGradGuard no_grad;
  if (std::equal(tensors.begin(), tensors.end(), like.begin(), is_memory_like)) {
    return flatten_memory(tensors);
  }
  std::vector<at::Tensor> parts;
  parts.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    parts.push_back(in_memory_order(tensors[i], like[i]));
  }
  return at::cat(parts);
}

std::vector<at::Tensor> unflatten(const at::Tensor& flat, at::TensorList like) {
  // Below this guard a view is a plain alias with a version counter of its own, and much cheaper.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::vector<at::Tensor> parts;
  parts.reserve(like.size());
  int64_t start = 0;
  for (const at::Tensor& shape : like) {
    if (shape.is_non_overlapping_and_dense()) {
      parts.push_back(flat.as_strided(shape.sizes(), shape.strides(), start));
    } else {
      parts.push_back(flat.narrow(0, start, shape.numel()).view(shape.sizes()));
    }
    start += shape.numel();
  }
  return parts;
}

}  // namespace lockstep::comm::internal
