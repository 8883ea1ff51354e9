// SPDX-License-Identifier: Apache-2.0
// relay.h: where the graph of one replica ends, so that it can be run by itself.
// Internal to parallel.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "replicate/gradient_router.h"

namespace lockstep::parallel::internal {

// Note [Backward In The Replicas' Threads]
// The autograd engine runs all CPU nodes of one backward() on the calling thread, so replicas on
// the CPU would do their forward in parallel and their backward one after another. Therefore the
// user's graph holds one node for all replicas (replica_backward.h), and the graph of each replica
// is cut off where it meets the original: its parameters and input chunks lead into relays, which
// lead nowhere. When the node is reached, every worker runs the engine on its own replica's graph;
// the relays put what arrives into the pass that the worker is in. The node then adds up and hands
// on. Restricting the engine to given outputs instead would do without relays, but costs about a
// tenth of a step in deep small networks and loses gradients of tensors from outside the module.
//
// Second derivatives need the graph whole. A backward that records (create_graph) therefore opens
// the relays when it is over: from then on they pass gradients on to the originals, and the node
// leads into the replicas' graphs, as if there had been no cut.

class Relay;

// Names one owner of relays for the life of the process. Not an address, which a later owner may
// get while a graph of the first one is still there.
using OwnerId = uint64_t;
OwnerId next_owner_id();

// The gradients that one replica's part of one backward pass has delivered.
struct Pass {
  OwnerId parameters_owner;  // the RelaySet whose relays deliver here
  OwnerId inputs_owner;      // the node of the forward
  torch::autograd::variable_list parameters;
  torch::autograd::variable_list inputs;
};

// Makes `pass` the one that relays on this thread deliver to, for one scope.
class PassScope {
 public:
  explicit PassScope(Pass& pass);
  ~PassScope();
  PassScope(const PassScope&) = delete;
  PassScope& operator=(const PassScope&) = delete;

 private:
  Pass* const outer_;
};

// Stands between a replica's tensor and the original's gradient edge.
// See Note [Backward In The Replicas' Threads].
class Relay : public torch::autograd::Node {
 public:
  enum class Kind { kParameter, kInput };

  // `owner` and `index` say which entry of a pass this delivers to.
  Relay(Kind kind, OwnerId owner, size_t index, torch::autograd::Edge target);

  std::string name() const override { return "lockstep::Relay"; }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  void release_variables() override;

  // From now on gradients that arrive outside of a pass go on to the target. Later calls do nothing.
  void open();

 private:
  const Kind kind_;
  const OwnerId owner_;
  const size_t index_;
  torch::autograd::Edge target_;  // empty once it is among the next edges
};

// A node that must be changed when relays open.
class OpensWithRelays {
 public:
  virtual ~OpensWithRelays();
  virtual void on_relays_opened() = 0;
};

// The relays of all parameters of all replicas, for as long as the same ones are trainable.
class RelaySet {
 public:
  explicit RelaySet(std::vector<replicate::internal::RoutedTensor> tensors);

  OwnerId id() const { return id_; }

  // The originals that require grad, with their gradient edges.
  const std::vector<replicate::internal::RoutedTensor>& tensors() const { return tensors_; }

  // The relay of tensor `index` in `replica`.
  const std::shared_ptr<Relay>& relay(size_t replica, size_t index) const {
    return relays_[replica][index];
  }
  std::vector<torch::autograd::edge_list> edges() const;

  // `node` is told when the relays open, or at once if they are; it must be alive or expired then.
  void add_node(std::weak_ptr<OpensWithRelays> node);

  // See Note [Backward In The Replicas' Threads]. Opens once; later calls do nothing.
  // Threads: no backward through these relays may be running in another thread.
  void open();
  bool is_open() const { return open_.load(std::memory_order_acquire); }

 private:
  const OwnerId id_ = next_owner_id();
  const std::vector<replicate::internal::RoutedTensor> tensors_;
  std::vector<std::vector<std::shared_ptr<Relay>>> relays_;
  std::atomic<bool> open_{false};
  std::mutex mutex_;
  std::vector<std::weak_ptr<OpensWithRelays>> nodes_;
};

// Gives the replicas' tensors edges into a RelaySet, and a new one once that is open.
class RelayRouter : public replicate::internal::GradientRouter {
 public:
  explicit RelayRouter(size_t num_replicas) : num_replicas_(num_replicas) {}

  std::vector<torch::autograd::edge_list> route(
      const std::vector<replicate::internal::RoutedTensor>& tensors) override;
  void clear() override { set_.reset(); }
  bool stale() const override { return set_ != nullptr && set_->is_open(); }

  const std::shared_ptr<RelaySet>& current() const { return set_; }

 private:
  const size_t num_replicas_;
  std::shared_ptr<RelaySet> set_;
};

}  // namespace lockstep::parallel::internal
