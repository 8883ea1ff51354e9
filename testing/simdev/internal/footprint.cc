// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/footprint.h"

#include <algorithm>

namespace lockstep::simdev::internal {
namespace {

// Steps after which two footprints pass for disjoint: a fault may be missed, none is invented.
constexpr int kBudget = 1 << 20;

}  // namespace

Footprint::Footprint(const at::Tensor& tensor, size_t storage_begin) {
  const size_t itemsize = tensor.itemsize();
  begin_ = storage_begin + tensor.storage_offset() * itemsize;
  if (tensor.is_non_overlapping_and_dense()) {
    end_ = begin_ + tensor.numel() * itemsize;
    return;
  }
  Steps steps;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.size(dim) > 1 && tensor.stride(dim) > 0) {
      steps.push_back({static_cast<size_t>(tensor.size(dim)),
                       static_cast<size_t>(tensor.stride(dim)) * itemsize, 0});
    }
  }
  std::sort(steps.begin(), steps.end(),
            [](const Step& a, const Step& b) { return a.stride > b.stride; });
  size_t extent = itemsize;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    step->extent = extent;
    extent += (step->count - 1) * step->stride;
  }
  end_ = begin_ + extent;
  // What is inside without gaps is one run of bytes.
  while (!steps.empty() && steps.back().stride <= steps.back().extent) {
    steps.pop_back();
  }
  if (!steps.empty()) {
    steps_ = std::make_shared<const Steps>(std::move(steps));
  }
}

size_t Footprint::extent(size_t level) const {
  if (level == 0) {
    return end_ - begin_;
  }
  return (*steps_)[level - 1].extent;
}

bool Footprint::meets(const Footprint& other) const {
  if (begin_ >= other.end_ || other.begin_ >= end_) {
    return false;
  }
  int budget = kBudget;
  return meets(*this, 0, begin_, other, 0, other.begin_, &budget);
}

// Takes the wider of the two apart, down to runs of bytes, looking only at parts within the range
// of the other.
bool Footprint::meets(const Footprint& a, size_t a_level, size_t a_begin, const Footprint& b,
                      size_t b_level, size_t b_begin, int* budget) {
  const size_t a_end = a_begin + a.extent(a_level);
  const size_t b_end = b_begin + b.extent(b_level);
  if (a_begin >= b_end || b_begin >= a_end || --*budget <= 0) {
    return false;
  }
  const bool a_is_run = a.steps_ == nullptr || a_level == a.steps_->size();
  const bool b_is_run = b.steps_ == nullptr || b_level == b.steps_->size();
  if (a_is_run && b_is_run) {
    return true;
  }
  if (a_is_run || (!b_is_run && b.extent(b_level) > a.extent(a_level))) {
    return meets(b, b_level, b_begin, a, a_level, a_begin, budget);
  }
  const Step& step = (*a.steps_)[a_level];
  const size_t reach = a_begin + step.extent;
  const size_t first = b_begin >= reach ? (b_begin - reach) / step.stride + 1 : 0;
  const size_t last = std::min(step.count - 1, (b_end - 1 - a_begin) / step.stride);
  for (size_t i = first; i <= last; ++i) {
    if (meets(a, a_level + 1, a_begin + i * step.stride, b, b_level, b_begin, budget)) {
      return true;
    }
  }
  return false;
}

bool Footprint::covers(const Footprint& other) const {
  return steps_ == nullptr && begin_ <= other.begin_ && other.end_ <= end_;
}

}  // namespace lockstep::simdev::internal
