// SPDX-License-Identifier: Apache-2.0
// access_log.h: which operators used a block of device memory, as far as it still matters.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "testing/simdev/internal/clocks.h"
#include "testing/simdev/internal/footprint.h"

namespace lockstep::simdev::internal {

// What messages say of a tensor; cheap to make.
struct TensorNote {
  TensorNote() = default;
  explicit TensorNote(const at::Tensor& tensor);
  std::string str() const;  // "Float[2, 3]"

  int64_t dim = -1;  // -1 for none
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  std::array<int64_t, 4> sizes = {};  // the first ones
};

struct Access {
  Footprint bytes;
  int stream;
  uint64_t time;
  bool write;
  const char* op;  // null for the allocation of the block, which counts as a write
  TensorNote tensor;
};

class AccessLog {
 public:
  // An access in conflict with `next` that nothing orders before it, or null.
  const Access* conflict(const Access& next, const ClockView& known) const;
  // Of the accesses, those by other streams that `known` does not know of.
  std::vector<Access> unknown_to(const ClockView& known, const std::vector<int>& except) const;
  void add(Access access);
  void clear() { accesses_.clear(); }
  const Access* last() const { return accesses_.empty() ? nullptr : &accesses_.back(); }

 private:
  std::vector<Access> accesses_;
};

}  // namespace lockstep::simdev::internal
