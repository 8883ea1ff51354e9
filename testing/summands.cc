// SPDX-License-Identifier: Apache-2.0
#include "testing/summands.h"

#include <ATen/ops/add.h>

#include "testing/random.h"

namespace lockstep::testing {

std::vector<at::Tensor> random_on_each(c10::ArrayRef<c10::Device> devices, at::IntArrayRef sizes,
                                       at::ScalarType dtype) {
  std::vector<at::Tensor> tensors;
  for (const c10::Device device : devices) {
    tensors.push_back(random_tensor(sizes, tensors.size() + 1, dtype).to(device));
  }
  return tensors;
}

at::Tensor successive_sum(const std::vector<at::Tensor>& inputs) {
  at::Tensor sum = inputs[0].cpu().clone();
  for (size_t i = 1; i < inputs.size(); ++i) {
    sum = at::add(sum, inputs[i].cpu());
  }
  return sum;
}

}  // namespace lockstep::testing
