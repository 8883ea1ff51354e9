// SPDX-License-Identifier: Apache-2.0
#include "comm/internal/checks.h"

#include <ATen/MemoryOverlap.h>
#include <c10/util/Exception.h>

#include <vector>

namespace lockstep::comm::internal {

DeviceCollectives& choose_collectives(DeviceCollectives* given, c10::Device home,
                                      c10::ArrayRef<c10::Device> others) {
  if (given != nullptr) {
    return *given;
  }
  c10::DeviceType type = home.type();
  for (const c10::Device device : others) {
    if (type != c10::DeviceType::CPU) {
      break;
    }
    type = device.type();
  }
  return default_collectives(type);
}

DeviceCollectives& choose_collectives(DeviceCollectives* given, c10::Device home,
                                      at::TensorList tensors) {
  std::vector<c10::Device> devices;
  for (const at::Tensor& tensor : tensors) {
    devices.push_back(tensor.device());
  }
  return choose_collectives(given, home, devices);
}

void check_defined(const char* op, const char* role, const at::Tensor& tensor, int64_t index) {
  TORCH_CHECK(tensor.defined(), "[", op, "] expected a defined ", role,
              ", got an undefined tensor, at index ", index);
}

void check_dense(const char* op, const char* role, const at::Tensor& tensor, int64_t index) {
  check_defined(op, role, tensor, index);
  TORCH_CHECK(tensor.layout() == at::kStrided && !tensor.is_quantized(), "[", op,
              "] expected a dense ", role, ", got ", tensor.toString(), ", at index ", index);
}

void check_dense_or_sparse(const char* op, const char* role, const at::Tensor& tensor,
                           int64_t index) {
  check_defined(op, role, tensor, index);
  const bool dense = tensor.layout() == at::kStrided && !tensor.is_quantized();
  TORCH_CHECK(dense || tensor.layout() == at::kSparse, "[", op, "] expected a dense or sparse COO ",
              role, ", got ", tensor.toString(), " of layout ", tensor.layout(), ", at index ",
              index);
}

void check_writable(const char* op, const at::Tensor& output, const at::Tensor& input,
                    int64_t index) {
  TORCH_CHECK(at::has_internal_overlap(output) != at::MemOverlap::Yes, "[", op,
              "] expected an output whose elements have memory of their own, got strides ",
              output.strides(), " for sizes ", output.sizes(), ", at index ", index);
  TORCH_CHECK(at::get_overlap_status(output, input) != at::MemOverlapStatus::Partial, "[", op,
              "] expected an output apart from the input, got one that overlaps it, at index ",
              index);
}

bool same_memory(const at::Tensor& a, const at::Tensor& b) {
  if (a.is_same(b)) {
    return true;
  }
  return a.device() == b.device() && a.is_alias_of(b) && a.storage_offset() == b.storage_offset() &&
         a.sizes() == b.sizes() && a.strides() == b.strides();
}

int64_t wrap_dim(const char* op, int64_t dim, int64_t ndim) {
  TORCH_CHECK(dim >= -ndim && dim < ndim, "[", op, "] expected dim in the range [", -ndim, ", ",
              ndim - 1, "], got ", dim);
  return dim < 0 ? dim + ndim : dim;
}

}  // namespace lockstep::comm::internal
