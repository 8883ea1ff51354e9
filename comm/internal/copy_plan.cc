// SPDX-License-Identifier: Apache-2.0
#include "comm/internal/copy_plan.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_foreach_copy.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "comm/internal/checks.h"
#include "comm/internal/plain_memory.h"

namespace lockstep::comm::internal {
namespace {

constexpr size_t kAhead = 8;  // entries; far enough for a line to arrive from memory
constexpr int64_t kGrainBytes =
    128 * 1024;  // bytes of copying that are worth a thread of their own

bool is_host_memory(const at::Tensor& tensor) { return tensor.is_cpu() && is_plain_memory(tensor); }

// Asks for a tensor's fields: with thousands of small tensors, waiting for them is most of the
// cost.
void prefetch(const at::Tensor& tensor) {
  const char* const fields = reinterpret_cast<const char*>(tensor.unsafeGetTensorImpl());
  __builtin_prefetch(fields);
  __builtin_prefetch(fields + 64);
  __builtin_prefetch(fields + 128);
}

std::string row_and_index(size_t row, size_t t) { return c10::str("row ", row, ", index ", t); }

void plan_local(const char* op, const at::Tensor& from, const at::Tensor& to, size_t row, size_t t,
                CopyPlan& plan) {
  if (!is_host_memory(from) || !is_host_memory(to) || from.strides() != to.strides()) {
    if (!same_memory(to, from)) {
      check_writable(op, to, from, static_cast<int64_t>(t));
      plan.local_from.push_back(from);
      plan.local_to.push_back(to);
    }
    return;
  }
  const size_t bytes = from.nbytes();
  const char* const source = static_cast<const char*>(from.const_data_ptr());
  char* const target = static_cast<char*>(to.mutable_data_ptr());
  if (source == target) {
    return;
  }
  TORCH_CHECK(target + bytes <= source || source + bytes <= target, "[", op,
              "] expected a copy apart from its tensor, got one that overlaps it, at ",
              row_and_index(row, t));
  plan.byte_copies.push_back({target, source, bytes, to.unsafeGetTensorImpl()});
  plan.byte_count += static_cast<int64_t>(bytes);
}

}  // namespace

CopyPlan plan_copies(const char* op, at::TensorList tensors,
                     c10::ArrayRef<std::vector<at::Tensor>> copies) {
  CopyPlan plan;
  plan.byte_copies.reserve(tensors.size() * copies.size());
  for (size_t t = 0; t < tensors.size(); ++t) {
    check_dense(op, "tensor", tensors[t], static_cast<int64_t>(t));
    TORCH_CHECK(tensors[t].device() == tensors[0].device(), "[", op, "] expected all tensors on ",
                tensors[0].device(), ", got ", tensors[t].device(), ", at index ", t);
  }
  for (size_t row = 0; row < copies.size(); ++row) {
    TORCH_CHECK(copies[row].size() == tensors.size(), "[", op, "] expected ", tensors.size(),
                " copies, got ", copies[row].size(), ", at row ", row);
    for (size_t t = 0; t < tensors.size(); ++t) {
      const at::Tensor& from = tensors[t];
      const at::Tensor& to = copies[row][t];
      if (t + kAhead < tensors.size()) {
        prefetch(tensors[t + kAhead]);
        prefetch(copies[row][t + kAhead]);
      }
      if (to.is_same(from)) {
        continue;
      }
      check_dense(op, "copy", to, static_cast<int64_t>(t));
      TORCH_CHECK(to.sizes() == from.sizes(), "[", op, "] expected a copy of size ", from.sizes(),
                  ", got ", to.sizes(), ", at ", row_and_index(row, t));
      TORCH_CHECK(to.scalar_type() == from.scalar_type(), "[", op, "] expected a copy of dtype ",
                  from.scalar_type(), ", got ", to.scalar_type(), ", at ", row_and_index(row, t));
      const c10::Device device = copies[row][0].device();
      TORCH_CHECK(to.device() == device, "[", op, "] expected all copies of one row on ", device,
                  ", got ", to.device(), ", at ", row_and_index(row, t));
      if (device == from.device()) {
        plan_local(op, from, to, row, t, plan);
      } else {
        check_writable(op, to, from, static_cast<int64_t>(t));
      }
    }
    if (!tensors.empty() && copies[row][0].device() != tensors[0].device()) {
      plan.remote_rows.push_back(row);
    }
  }
  return plan;
}

void copy_local(const CopyPlan& plan) {
  const int64_t count = static_cast<int64_t>(plan.byte_copies.size());
  const int64_t grain =
      std::max<int64_t>(1, kGrainBytes * count / std::max<int64_t>(plan.byte_count, 1));
  at::parallel_for(0, count, grain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const ByteCopy& copy = plan.byte_copies[static_cast<size_t>(i)];
      if (static_cast<size_t>(i) + kAhead < plan.byte_copies.size()) {
        const ByteCopy& later = plan.byte_copies[static_cast<size_t>(i) + kAhead];
        __builtin_prefetch(later.to, 1);
        __builtin_prefetch(later.from);
      }
      if (copy.bytes != 0) {
        std::memcpy(copy.to, copy.from, copy.bytes);
      }
      copy.written->bump_version();
    }
  });
  if (!plan.local_to.empty()) {
    at::_foreach_copy_(plan.local_to, plan.local_from);
  }
}

}  // namespace lockstep::comm::internal
