// SPDX-License-Identifier: Apache-2.0
// replicate.h: copies of a module on several devices, whose gradients arrive at the original.
// Use it for a custom parallel forward; for training loops there is DataParallel, and to keep
// replicas between steps ReplicaSet (replica_set.h).
//
//   auto replicas = lockstep::replicate::replicate(net, {cpu, cpu});
//   auto loss = replicas[0]->forward(a).sum() + replicas[1]->forward(b).sum();
//   loss.backward();                       // net->parameters() have their gradients now
#pragma once

#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <vector>

#include "replicate/replicate_options.h"

namespace lockstep::replicate {
namespace internal {

// The untyped form; returns none for an empty list of devices.
std::vector<std::shared_ptr<torch::nn::Module>> replicate_module(
    const std::shared_ptr<torch::nn::Module>& module, c10::ArrayRef<c10::Device> devices,
    const ReplicateOptions& options);

// Casts replicas to the original's static type. Throws c10::Error if a factory made another type.
template <class M>
std::vector<std::shared_ptr<M>> cast_replicas(
    const std::vector<std::shared_ptr<torch::nn::Module>>& replicas) {
  std::vector<std::shared_ptr<M>> typed;
  typed.reserve(replicas.size());
  for (const auto& replica : replicas) {
    typed.push_back(std::dynamic_pointer_cast<M>(replica));
    TORCH_CHECK(typed.back() != nullptr, "[replicate] expected a copy of type ",
                c10::demangle(typeid(M).name()), ", got one of type ", replica->name(),
                ": make_replica() or the factory makes another type");
  }
  return typed;
}

}  // namespace internal

// Returns one replica of `module` per entry of `devices`, in order. Each is of the module's own
// type and lives as long as it is held or a graph that used it.
//
// Replica 0 shares all storage with the original, so what a forward does to its parameters and
// buffers in place (BatchNorm statistics) is done to the original. Further replicas on the same
// device share the parameters' storage (see ReplicateOptions::share_parameters) and own their
// buffers; replicas on other devices own everything. Modes (training or not) and frozen parameters
// are as in the original; tensors registered under several names stay tied. Other members are
// copied as the module's copy constructor does. The default generator is left untouched.
//
// The replicas' parameters are not leaves: an optimizer takes the original's.
//
// Devices: the module's tensors are on devices[0]; entries may repeat. An empty list gives none.
// Grad:    the gradients of all replicas are summed in list order onto the original's tensors, by
//          one node; a tensor that a replica does not use counts as zero, one that none uses gets
//          no gradient. Twice differentiable. Replicas made while grad mode is off are connected
//          all the same.
// Throws:  c10::Error if a tensor is elsewhere than on devices[0] (it is named); if the module
//          cannot be copied (its type and the remedy are named); before any work on the devices.
// Threads: several threads may replicate one module, if none changes it meanwhile.
template <class M>
std::vector<std::shared_ptr<M>> replicate(const std::shared_ptr<M>& module,
                                          c10::ArrayRef<c10::Device> devices,
                                          const ReplicateOptions& options = {}) {
  return internal::cast_replicas<M>(internal::replicate_module(module, devices, options));
}

// The same for a module holder, as TORCH_MODULE defines them.
template <class M>
std::vector<torch::nn::ModuleHolder<M>> replicate(const torch::nn::ModuleHolder<M>& module,
                                                  c10::ArrayRef<c10::Device> devices,
                                                  const ReplicateOptions& options = {}) {
  std::vector<torch::nn::ModuleHolder<M>> holders;
  for (auto& replica : replicate(module.ptr(), devices, options)) {
    holders.emplace_back(std::move(replica));
  }
  return holders;
}

}  // namespace lockstep::replicate
