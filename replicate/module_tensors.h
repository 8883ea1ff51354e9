// SPDX-License-Identifier: Apache-2.0
// module_tensors.h: the tensors of a module tree, each once.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <vector>

namespace lockstep::replicate {

// Returns the parameters of `module` and its children in registration order, each once however many
// names it has. This is the list an optimizer should get: Module::parameters() names a parameter
// that is registered twice twice, and an optimizer then steps it twice.
std::vector<at::Tensor> unique_parameters(const torch::nn::Module& module);

}  // namespace lockstep::replicate
