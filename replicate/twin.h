// SPDX-License-Identifier: Apache-2.0
// twin.h: a structural copy of a module, and which of its tensors belongs to which of the original.
// Internal to replicate; values, gradients and modes are the business of replica_state.h.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "replicate/replicatable.h"
#include "replicate/replicate_options.h"

namespace lockstep::replicate::internal {

// A tensor of the original under one of its names, and the twin's handle of the same name.
struct TensorPair {
  std::string name;
  at::Tensor original;
  at::Tensor twin;
  bool is_parameter = false;
  bool written_in_forward = false;  // replicas that run at once must not share its memory
};

// The tensors that a twin names in visit_extra_tensors(), in that order; undefined where the
// original's is.
struct ExtraTensors {
  Replicatable* twin;
  std::vector<at::Tensor> tensors;
};

// A module of the original and the one at the same place in the twin.
struct ModulePair {
  const torch::nn::Module* original;
  torch::nn::Module* twin;
};

struct Pairs {
  std::vector<ModulePair> modules;  // parents before children
  std::vector<TensorPair> tensors;  // a tensor with several names comes once per name
  std::vector<ExtraTensors> extras;
};

// Warns, once per process, of a module whose tree holds no registered tensor though its type is
// neither LibTorch's nor Replicatable: its layers are probably in members that nobody sees.
void warn_if_nothing_is_registered(const torch::nn::Module& module,
                                   const ReplicateOptions& options);

// Returns a module of the structure of `original` on `device`, by options.factory, Replicatable or
// clone(), whichever applies first. Never writes to the original, and draws from no generator: its
// parameters have no initial values. See no_draws_scope.h; an initialisation that then fails is run
// once more with values.
// Throws: c10::Error naming the concrete type and the three ways, if none applies; one naming the
//   tensors that reset() does not register, if clone() fails for that.
std::shared_ptr<torch::nn::Module> make_twin(const std::shared_ptr<torch::nn::Module>& original,
                                             c10::Device device, const ReplicateOptions& options);

// Pairs the modules and tensors of both trees, by name where the names agree, else by order.
// Undefined tensors are left out. Extra tensors of a Replicatable become tensors of the twin's own.
// Throws: c10::Error naming the module and the tensor if the trees differ, also if the twin ties two
//   tensors to one that the original does not, or holds one of another layout.
Pairs pair_with_twin(const std::shared_ptr<torch::nn::Module>& original,
                     const std::shared_ptr<torch::nn::Module>& twin, c10::Device device,
                     const ReplicateOptions& options);

}  // namespace lockstep::replicate::internal
