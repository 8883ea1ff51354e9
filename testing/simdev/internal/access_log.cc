// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/access_log.h"

#include <algorithm>
#include <sstream>
#include <utility>

namespace lockstep::simdev::internal {
namespace {

// Beyond it the oldest access is forgotten.
constexpr size_t kMaxAccesses = 256;

bool unordered(const Access& access, const ClockView& known) {
  return !known.knows(access.stream, access.time);
}

}  // namespace

TensorNote::TensorNote(const at::Tensor& tensor) : dim(tensor.dim()), dtype(tensor.scalar_type()) {
  const auto shape = tensor.sizes();
  std::copy_n(shape.begin(), std::min(shape.size(), sizes.size()), sizes.begin());
}

std::string TensorNote::str() const {
  if (dim < 0) {
    return "memory";
  }
  std::ostringstream text;
  text << c10::toString(dtype) << "[";
  for (int64_t i = 0; i < dim; ++i) {
    text << (i == 0 ? "" : ", ");
    if (i == static_cast<int64_t>(sizes.size())) {
      text << "...";
      break;
    }
    text << sizes[i];
  }
  text << "]";
  return text.str();
}

const Access* AccessLog::conflict(const Access& next, const ClockView& known) const {
  for (const Access& access : accesses_) {
    if ((access.write || next.write) && unordered(access, known) &&
        access.bytes.meets(next.bytes)) {
      return &access;
    }
  }
  return nullptr;
}

std::vector<Access> AccessLog::unknown_to(const ClockView& known,
                                          const std::vector<int>& except) const {
  std::vector<Access> unknown;
  for (const Access& access : accesses_) {
    const bool excepted = std::find(except.begin(), except.end(), access.stream) != except.end();
    if (unordered(access, known) && !excepted) {
      unknown.push_back(access);
    }
  }
  return unknown;
}

void AccessLog::add(Access next) {
  // What comes after `next` comes after all that `next` comes after: a write makes earlier accesses
  // of its bytes irrelevant, a read earlier reads of its stream.
  const auto is_outdated = [&](const Access& access) {
    return (next.write || (!access.write && access.stream == next.stream)) &&
           next.bytes.covers(access.bytes);
  };
  accesses_.erase(std::remove_if(accesses_.begin(), accesses_.end(), is_outdated), accesses_.end());
  if (accesses_.size() >= kMaxAccesses) {
    accesses_.erase(accesses_.begin());
  }
  accesses_.push_back(std::move(next));
}

}  // namespace lockstep::simdev::internal
