// SPDX-License-Identifier: Apache-2.0
// parameter_containers.h: a ParameterList and a ParameterDict that keep their entries in clone().
// LibTorch's own lose them there, and every module that holds one cannot be cloned. These are
// LibTorch's types in everything else: write the other name, and a Cloneable module replicates.
//
//   list = register_module("list", lockstep::replicate::ParameterList(a, b));
#pragma once

#include <c10/core/Device.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/parameterdict.h>
#include <torch/nn/modules/container/parameterlist.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <optional>

namespace lockstep::replicate {

class ParameterListImpl : public torch::nn::ParameterListImpl {
 public:
  using torch::nn::ParameterListImpl::ParameterListImpl;
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<c10::Device>& device = std::nullopt) const override;
};
TORCH_MODULE(ParameterList);

class ParameterDictImpl : public torch::nn::ParameterDictImpl {
 public:
  using torch::nn::ParameterDictImpl::ParameterDictImpl;
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<c10::Device>& device = std::nullopt) const override;
};
TORCH_MODULE(ParameterDict);

}  // namespace lockstep::replicate
