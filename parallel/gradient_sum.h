// SPDX-License-Identifier: Apache-2.0
// gradient_sum.h: adds up the replicas' CPU gradients in the threads that made them.
// Internal to parallel.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <vector>

namespace lockstep::parallel::internal {

// The sum of two gradients, in the order of operands where that matters; undefined ones count as
// zero. Recorded if grad mode is on. A sparse and a dense one give a dense sum.
at::Tensor add_gradients(const at::Tensor& a, const at::Tensor& b);

// Which thread adds up which elements: every thread about as many.
class SumPlan {
 public:
  struct Piece {
    size_t tensor;
    int64_t begin;  // elements, in memory order
    int64_t end;
  };

  SumPlan() = default;
  SumPlan(const std::vector<int64_t>& num_elements, size_t num_parts);

  size_t num_parts() const { return parts_.size(); }
  const std::vector<Piece>& part(size_t index) const { return parts_[index]; }

 private:
  std::vector<std::vector<Piece>> parts_;
};

// One summation over replicas, in replica order whatever the threads do: ((g0 + g1) + g2) + ...
// A replica without a gradient counts as zero; the sum of none is undefined.
class GradientSum {
 public:
  // gradients[r][i] is replica r's gradient of tensor i. They are consumed: where memory of one is
  // owned by nobody else, the sum is made there.
  GradientSum(const SumPlan& plan, std::vector<torch::autograd::variable_list*> gradients,
              size_t num_tensors);

  // Adds up the parts that fall to `thread` of `num_threads`. All threads must call it, at a time
  // when no gradient is touched otherwise; the sums are ready when all have returned.
  void run(size_t thread, size_t num_threads);

  // The sums, once all threads are done. Empties the slots of gradients[..][i] they came from.
  torch::autograd::variable_list take();

 private:
  void add_piece(const SumPlan::Piece& piece);

  const SumPlan& plan_;
  const std::vector<torch::autograd::variable_list*> gradients_;
  torch::autograd::variable_list sums_;  // those that could not be made in place
  std::vector<int32_t> home_;            // replica in whose gradient the sum was made, or -1
};

}  // namespace lockstep::parallel::internal
