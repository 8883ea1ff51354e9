// SPDX-License-Identifier: Apache-2.0
// replica_set.h: replicas that are made once and synchronised before each use.
// Use it for a parallel loop of your own; DataParallel (parallel/) is built on the same.
//
//   lockstep::replicate::ReplicaSet<NetImpl> set(net.ptr(), {cpu, cpu});
//   for (...) {
//     set.synchronize();
//     auto loss = set.replicas()[0]->forward(a).sum() + set.replicas()[1]->forward(b).sum();
//     loss.backward();
//     optimizer.step();
//   }
#pragma once

#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <vector>

#include "replicate/replica_state.h"
#include "replicate/replicate.h"
#include "replicate/replicate_options.h"

namespace lockstep::replicate {

// What a replica is, shares and owns, and where gradients go: see replicate().
template <class M>
class ReplicaSet {
 public:
  // Makes the replicas, in sync with the module.
  // Throws: as replicate(); and c10::Error if `devices` is empty.
  ReplicaSet(std::shared_ptr<M> module, c10::ArrayRef<c10::Device> devices,
             const ReplicateOptions& options = {})
      : module_(std::move(module)),
        state_(internal::make_replica_state(module_, devices, options)),
        replicas_(internal::cast_replicas<M>(state_->replicas())) {}

  ReplicaSet(const torch::nn::ModuleHolder<M>& module, c10::ArrayRef<c10::Device> devices,
             const ReplicateOptions& options = {})
      : ReplicaSet(module.ptr(), devices, options) {}

  // Brings every replica in line with the module: values of parameters (where they are not shared)
  // and buffers, training modes, requires_grad. Call it after an optimizer step and before the next
  // forward. A graph made before a parameter changed then throws in backward, as on one device; one
  // made before a call that found nothing changed stays good. If modules or tensors were added to
  // the module or replaced in it, the replicas are made anew.
  // Threads: no replica may be in use meanwhile; calls must not overlap.
  void synchronize() {
    state_->synchronize();
    if (state_->num_builds() != builds_seen_) {
      builds_seen_ = state_->num_builds();
      replicas_ = internal::cast_replicas<M>(state_->replicas());
    }
  }

  // The replicas, by position in devices(). Valid until a synchronisation has to make them anew.
  const std::vector<std::shared_ptr<M>>& replicas() const { return replicas_; }

  // The original: the same object that was given.
  const std::shared_ptr<M>& module() const { return module_; }

  const std::vector<c10::Device>& devices() const { return state_->devices(); }

 private:
  std::shared_ptr<M> module_;
  std::unique_ptr<internal::ReplicaState> state_;
  std::vector<std::shared_ptr<M>> replicas_;
  int64_t builds_seen_ = 1;
};

}  // namespace lockstep::replicate
