// SPDX-License-Identifier: Apache-2.0
// placement.h: whether a module is where it should be. Internal to the project.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <string>

namespace lockstep::replicate::internal {

// Throws c10::Error naming the tensor and both devices if it is elsewhere than on `device`. `kind`
// is what to call it.
void check_placement(const char* kind, const std::string& name, const at::Tensor& tensor,
                     c10::Device device);

// The same for all parameters, buffers and extra tensors of a tree.
void check_module_is_on(torch::nn::Module& module, c10::Device device);

}  // namespace lockstep::replicate::internal
