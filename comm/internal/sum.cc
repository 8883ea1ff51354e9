// SPDX-License-Identifier: Apache-2.0
#include "comm/internal/sum.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <vector>

#include "comm/internal/sparse_parts.h"

namespace lockstep::comm::internal {
namespace {

at::Tensor sum_sparse(at::TensorList inputs, c10::Device destination,
                      DeviceCollectives& collectives) {
  at::Tensor sum = sparse_to_device(inputs[0], destination, collectives);
  if (inputs.size() == 1 && sum.is_same(inputs[0])) {
    return sum.clone();
  }
  for (const at::Tensor& input : inputs.slice(1)) {
    sum = at::add(sum, sparse_to_device(input, destination, collectives));
  }
  return sum;
}

at::Tensor sum_dense(at::TensorList inputs, c10::Device destination,
                     DeviceCollectives& collectives) {
  at::Tensor sum = at::empty_like(inputs[0], inputs[0].options().device(destination),
                                  at::MemoryFormat::Preserve);
  if (inputs.size() == 1) {
    collectives.copy(inputs[0], sum);
  } else {
    collectives.reduce_add(inputs, sum);
  }
  return sum;
}

}  // namespace

at::Tensor sum_fresh(at::TensorList inputs, c10::Device destination,
                     DeviceCollectives& collectives) {
  const at::NoGradGuard no_grad;
  const auto sparse = [](const at::Tensor& input) { return input.is_sparse(); };
  if (std::all_of(inputs.begin(), inputs.end(), sparse)) {
    return sum_sparse(inputs, destination, collectives);
  }
  if (std::none_of(inputs.begin(), inputs.end(), sparse)) {
    return sum_dense(inputs, destination, collectives);
  }
  std::vector<at::Tensor> dense;
  dense.reserve(inputs.size());
  for (const at::Tensor& input : inputs) {
    dense.push_back(input.is_sparse() ? input.to_dense() : input);
  }
  return sum_dense(dense, destination, collectives);
}

}  // namespace lockstep::comm::internal
