// SPDX-License-Identifier: Apache-2.0
#include "replicate/module_tensors.h"

#include <unordered_set>

namespace lockstep::replicate {

std::vector<at::Tensor> unique_parameters(const torch::nn::Module& module) {
  std::unordered_set<const c10::TensorImpl*> seen;
  std::vector<at::Tensor> unique;
  for (at::Tensor& parameter : module.parameters()) {
    if (seen.insert(parameter.unsafeGetTensorImpl()).second) {
      unique.push_back(std::move(parameter));
    }
  }
  return unique;
}

}  // namespace lockstep::replicate
