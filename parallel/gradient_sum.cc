// SPDX-License-Identifier: Apache-2.0
#include "parallel/gradient_sum.h"

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <utility>

namespace lockstep::parallel::internal {
namespace {

// Pieces below this many elements are not worth a second thread.
constexpr int64_t kMinPiece = 4096;
constexpr int64_t kAlignment = 16;

// Adds in the order of the sources. `out` may be one of them.
template <class T>
void add_in_order(T* out, const std::vector<const T*>& sources, int64_t begin, int64_t end) {
  if (sources.size() == 2) {
    const T* a = sources[0];
    const T* b = sources[1];
#pragma GCC ivdep
    for (int64_t i = begin; i < end; ++i) {
      out[i] = a[i] + b[i];
    }
    return;
  }
  for (int64_t i = begin; i < end; ++i) {
    T sum = sources[0][i];
    for (size_t r = 1; r < sources.size(); ++r) {
      sum += sources[r][i];
    }
    out[i] = sum;
  }
}

// Whether nobody else can see the tensor's memory. A view whose base nobody holds counts: the
// gradient of a Linear weight is one.
bool owns_its_memory(const at::Tensor& tensor) {
  if (tensor.use_count() != 1) {
    return false;
  }
  const auto& storage = tensor.storage();
  if (storage.use_count() == 1) {
    return true;
  }
  const auto* view = torch::autograd::impl::get_view_autograd_meta(tensor);
  if (storage.use_count() != 2 || view == nullptr || !view->has_bw_view()) {
    return false;
  }
  const at::Tensor& base = view->get_backward_view().base_;
  return base.use_count() == 1 &&
         base.storage().unsafeGetStorageImpl() == storage.unsafeGetStorageImpl();
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == c10::kStrided && tensor.device().is_cpu() &&
         (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble) &&
         tensor.is_non_overlapping_and_dense() && !tensor.is_conj() && !tensor.is_neg();
}

}  // namespace

at::Tensor add_gradients(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) {
    return a.defined() ? a : b;
  }
  // LibTorch adds a sparse tensor to a dense one, but not the other way round.
  return a.is_sparse() && !b.is_sparse() ? b + a : a + b;
}

SumPlan::SumPlan(const std::vector<int64_t>& num_elements, size_t num_parts) : parts_(num_parts) {
  int64_t total = 0;
  for (const int64_t n : num_elements) {
    total += n;
  }
  const auto count = static_cast<int64_t>(num_parts);
  const int64_t share = ((total + count - 1) / std::max<int64_t>(count, 1) + kAlignment - 1) /
                        kAlignment * kAlignment;
  int64_t position = 0;
  for (size_t i = 0; i < num_elements.size(); ++i) {
    int64_t begin = 0;
    do {
      const int64_t part = std::min(count - 1, position / std::max<int64_t>(share, 1));
      int64_t end = num_elements[i];
      if (part < count - 1) {
        end = std::min(end, begin + share * (part + 1) - position);
      }
      if (num_elements[i] - end < kMinPiece) {
        end = num_elements[i];
      }
      parts_[part].push_back({i, begin, end});
      position += end - begin;
      begin = end;
    } while (begin < num_elements[i]);
  }
}

GradientSum::GradientSum(const SumPlan& plan,
                         std::vector<torch::autograd::variable_list*> gradients, size_t num_tensors)
    : plan_(plan), gradients_(std::move(gradients)), sums_(num_tensors), home_(num_tensors, -1) {}

void GradientSum::run(size_t thread, size_t num_threads) {
  for (size_t part = thread; part < plan_.num_parts(); part += num_threads) {
    for (const SumPlan::Piece& piece : plan_.part(part)) {
      add_piece(piece);
    }
  }
}

void GradientSum::add_piece(const SumPlan::Piece& piece) {
  const size_t i = piece.tensor;
  const bool is_first = piece.begin == 0;
  size_t num_defined = 0;
  int32_t home = -1;
  bool fast = true;
  const at::Tensor* like = nullptr;
  for (size_t r = 0; r < gradients_.size(); ++r) {
    const at::Tensor& gradient = (*gradients_[r])[i];
    if (!gradient.defined()) {
      continue;
    }
    ++num_defined;
    if (like == nullptr) {
      like = &gradient;
    }
    fast = fast && is_plain(gradient) && gradient.scalar_type() == like->scalar_type() &&
           gradient.sizes() == like->sizes() && gradient.strides() == like->strides();
    if (fast && home < 0 && owns_its_memory(gradient)) {
      home = static_cast<int32_t>(r);
    }
  }
  if (num_defined == 0) {
    return;
  }
  if (num_defined == 1 || !fast || home < 0) {
    // Not divided: whoever has the first piece does it all.
    if (is_first) {
      at::Tensor& sum = sums_[i];
      for (const auto* gradients : gradients_) {
        sum = add_gradients(sum, (*gradients)[i]);
      }
    }
    return;
  }
  if (is_first) {
    home_[i] = home;
  }
  const auto add = [&](auto zero) {
    using T = decltype(zero);
    std::vector<const T*> sources;
    for (const auto* gradients : gradients_) {
      if ((*gradients)[i].defined()) {
        sources.push_back((*gradients)[i].const_data_ptr<T>());
      }
    }
    add_in_order(static_cast<T*>((*gradients_[home])[i].mutable_data_ptr()), sources, piece.begin,
                 piece.end);
  };
  if (like->scalar_type() == at::kFloat) {
    add(float{});
  } else {
    add(double{});
  }
}

torch::autograd::variable_list GradientSum::take() {
  for (size_t i = 0; i < sums_.size(); ++i) {
    if (home_[i] >= 0) {
      sums_[i] = std::move((*gradients_[home_[i]])[i]);
    }
  }
  return std::move(sums_);
}

}  // namespace lockstep::parallel::internal
