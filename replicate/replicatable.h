// SPDX-License-Identifier: Apache-2.0
// replicatable.h: how a module that is not Cloneable says how it is copied.
//
// Most modules need nothing of this: torch::nn::Cloneable is enough. Derive from Replicatable when
// clone() is missing or wrong for a module, or when it holds tensors outside its registry:
//
//   struct Net : torch::nn::Module, lockstep::replicate::Replicatable {
//     explicit Net(int64_t width) : width(width) {
//       weight = register_parameter("weight", torch::randn({width}));
//       scale = torch::full({1}, 3.0);   // a bare member, in no registry
//     }
//     std::shared_ptr<torch::nn::Module> make_replica() const override {
//       return std::make_shared<Net>(width);
//     }
//     void visit_extra_tensors(const TensorVisitor& visit) override { visit("scale", scale); }
//     ...
//   };
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>

namespace lockstep::replicate {

class Replicatable {
 public:
  using TensorVisitor = std::function<void(const std::string& name, at::Tensor& tensor)>;

  virtual ~Replicatable();

  // Returns a new module of the same type and structure: the same parameters, buffers and children
  // under the same names. Their values do not matter, they are replaced; so nothing need be
  // initialised. Draws from the default CPU generator are undone by the caller.
  // Threads: may be called from several threads at the same time, for the same original.
  virtual std::shared_ptr<torch::nn::Module> make_replica() const = 0;

  // Calls `visit` for every tensor member that is in no registry, by reference and in a fixed
  // order. Each then behaves like a buffer: replica 0 shares it with the original, every other
  // replica owns a copy that is refreshed at each synchronisation. One that requires grad is
  // differentiable like a parameter. Always the same ones: a synchronisation also puts them back
  // into the members, so forward must write to them in place, not assign.
  virtual void visit_extra_tensors(const TensorVisitor& visit);
};

}  // namespace lockstep::replicate
