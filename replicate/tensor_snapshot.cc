// SPDX-License-Identifier: Apache-2.0
#include "replicate/tensor_snapshot.h"

#include <utility>

namespace lockstep::replicate::internal {
namespace {

namespace variable = torch::autograd::impl;

// Three cache lines: what is read of a TensorImpl, and of an AutogradMeta, lies within them.
void prefetch_object(const void* object) {
  const char* const start = static_cast<const char*>(object);
  __builtin_prefetch(start);
  __builtin_prefetch(start + 64);
  __builtin_prefetch(start + 128);
}

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

// Whether storage, layout and dtype say what the values are.
bool is_plain(const at::Tensor& tensor) {
  return tensor.layout() == c10::kStrided && !tensor.is_conj() && !tensor.is_neg();
}

template <class A, class B>
bool same_owner(const A& a, const B& b) {
  return !a.owner_before(b) && !b.owner_before(a);
}

}  // namespace

TensorSnapshot::TensorSnapshot(const at::Tensor& tensor, torch::autograd::Edge edge)
    : tensor_(tensor),
      meta_(variable::get_autograd_meta(tensor)),
      edge_(std::move(edge)),
      function_(edge_.function) {
  if (!is_plain(tensor)) {
    return;
  }
  storage_ = storage_of(tensor);
  offset_ = tensor.storage_offset();
  dtype_ = tensor.dtype();
  sizes_.assign(tensor.sizes().begin(), tensor.sizes().end());
  strides_.assign(tensor.strides().begin(), tensor.strides().end());
}

bool TensorSnapshot::same_layout() const {
  return storage_ != nullptr && is_plain(tensor_) && storage_of(tensor_) == storage_ &&
         tensor_.storage_offset() == offset_ && tensor_.dtype() == dtype_ &&
         tensor_.sizes() == c10::IntArrayRef(sizes_) &&
         tensor_.strides() == c10::IntArrayRef(strides_);
}

bool TensorSnapshot::same_edge() const {
  const auto* meta = variable::get_autograd_meta(tensor_);
  if (meta == nullptr || !meta->requires_grad()) {
    return !edge_.is_valid();
  }
  if (!edge_.is_valid()) {
    return false;
  }
  if (meta->grad_fn_ != nullptr || meta->is_view_) {
    return variable::gradient_edge(tensor_) == edge_;
  }
  return same_owner(meta->grad_accumulator_, function_);
}

void TensorSnapshot::prefetch() const {
  prefetch_object(tensor_.unsafeGetTensorImpl());
  if (meta_ != nullptr) {
    prefetch_object(meta_);
  }
}

}  // namespace lockstep::replicate::internal
