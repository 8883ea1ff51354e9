// SPDX-License-Identifier: Apache-2.0
// footprint.h: the bytes of a block that a tensor covers, exactly: columns of one matrix that lie
// between each other do not meet.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace lockstep::simdev::internal {

class Footprint {
 public:
  Footprint(size_t begin, size_t end) : begin_(begin), end_(end) {}
  // Of a tensor with elements whose storage begins at `storage_begin` of the block.
  Footprint(const at::Tensor& tensor, size_t storage_begin);

  size_t begin() const { return begin_; }
  size_t end() const { return end_; }
  bool meets(const Footprint& other) const;
  // False if it cannot be told cheaply.
  bool covers(const Footprint& other) const;

 private:
  struct Step {
    size_t count;
    size_t stride;
    size_t extent;  // bytes from the first byte to the last of what is inside
  };
  using Steps = std::vector<Step>;
  static bool meets(const Footprint& a, size_t a_level, size_t a_begin, const Footprint& b,
                    size_t b_level, size_t b_begin, int* budget);
  size_t extent(size_t level) const;

  size_t begin_;
  size_t end_;
  std::shared_ptr<const Steps> steps_;  // from the widest stride to the narrowest; null if dense
};

}  // namespace lockstep::simdev::internal
