// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/ones.h>

#include <cstdio>

#include "autograd_fns/scatter.h"

int main() {
  const at::Tensor batch = at::ones({4, 2}).requires_grad_();
  const auto parts = lockstep::autograd_fns::scatter(batch, {c10::kCPU, c10::kCPU});
  parts[1].sum().backward();
  std::printf("%zu parts\n", parts.size());
  return parts.size() == 2 && batch.grad().sum().item<float>() == 4 ? 0 : 1;
}
