// SPDX-License-Identifier: Apache-2.0
// batch_dependence.h: finds layers with which splitting a batch changes more than rounding. Internal
// to parallel.
#pragma once

#include <torch/nn/module.h>

#include <optional>
#include <string>

namespace lockstep::parallel::internal {

struct BatchDependence {
  std::string path;    // as in named_modules(); empty for the module itself
  std::string type;    // torch::nn::BatchNorm2dImpl
  std::string reason;  // "normalises by its batch"
};

// Returns the first part of `module`, in the order of named_modules(), that lets rows of a batch see
// each other or draws random numbers, in the mode (train or eval) that it is in; none if there is
// none. It knows LibTorch's own layers and what derives from them: what a forward of the user does
// cannot be seen.
std::optional<BatchDependence> find_batch_dependence(const torch::nn::Module& module);

// Throws: c10::Error if there is one, for DevicePolicy::kAutomatic. `name` begins the message.
void check_batch_independent(const char* name, const torch::nn::Module& module);

}  // namespace lockstep::parallel::internal
