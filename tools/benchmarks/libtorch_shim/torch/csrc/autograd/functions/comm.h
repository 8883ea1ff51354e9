// SPDX-License-Identifier: Apache-2.0
// A stand-in for LibTorch's header of the same name, for one target only: it lets LibTorch's own
// data_parallel run on CPU replicas, as a peer to measure against.
//
// LibTorch's Scatter and Gather live in its CUDA library and refuse CPU tensors. Here they are the
// cheapest differentiable forms that a CPU has: views of the input and one concatenation. So the
// peer is never slower than LibTorch's code makes it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <c10/core/Device.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace torch::autograd {

class Scatter {
 public:
  explicit Scatter(std::vector<at::Device> devices,
                   std::optional<std::vector<int64_t>> chunk_sizes = std::nullopt, int64_t dim = 0)
      : devices_(std::move(devices)), chunk_sizes_(std::move(chunk_sizes)), dim_(dim) {}

  variable_list apply(variable_list&& inputs) const {
    const at::Tensor& input = inputs.front();
    variable_list chunks = chunk_sizes_ ? input.split_with_sizes(*chunk_sizes_, dim_)
                                        : input.chunk(static_cast<int64_t>(devices_.size()), dim_);
    for (size_t i = 0; i < chunks.size(); ++i) chunks[i] = chunks[i].to(devices_[i]);
    return chunks;
  }

 private:
  std::vector<at::Device> devices_;
  std::optional<std::vector<int64_t>> chunk_sizes_;
  int64_t dim_;
};

class Gather {
 public:
  explicit Gather(const at::Device& destination, int64_t dim = 0)
      : destination_(destination), dim_(dim) {}

  variable_list apply(variable_list&& inputs) const {
    return {at::cat(inputs, dim_).to(destination_)};
  }

 private:
  at::Device destination_;
  int64_t dim_;
};

}  // namespace torch::autograd
