// SPDX-License-Identifier: Apache-2.0
#include "parallel/relay.h"

#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "autograd_fns/node_ptr.h"
#include "parallel/gradient_sum.h"

namespace lockstep::parallel::internal {

using replicate::internal::RoutedTensor;
using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::variable_list;

namespace {

thread_local Pass* current_pass = nullptr;

}  // namespace

OwnerId next_owner_id() {
  static std::atomic<OwnerId> last{0};
  return ++last;
}

PassScope::PassScope(Pass& pass) : outer_(current_pass) { current_pass = &pass; }

PassScope::~PassScope() { current_pass = outer_; }

Relay::Relay(Kind kind, OwnerId owner, size_t index, Edge target)
    : kind_(kind), owner_(owner), index_(index), target_(std::move(target)) {
  // The engine prunes its search by the longest way to a leaf, which must count the way beyond the
  // cut; so the edge is added for good measure, and taken out again.
  add_next_edge(target_);
  next_edges().clear();
}

variable_list Relay::apply(variable_list&& gradients) {
  Pass* const pass = current_pass;
  const bool is_parameter = kind_ == Kind::kParameter;
  if (pass != nullptr && owner_ == (is_parameter ? pass->parameters_owner : pass->inputs_owner)) {
    at::Tensor& sum = (is_parameter ? pass->parameters : pass->inputs)[index_];
    // A second delivery in one pass comes from a backward inside the backward (checkpointing).
    sum = add_gradients(sum, gradients[0]);
    return variable_list(num_outputs());
  }
  TORCH_CHECK(num_outputs() == 1,
              "[DataParallel] a gradient left a replica outside of its own backward. This happens "
              "when a graph is differentiated a third time after a later forward, or when backward "
              "is nested too deeply; use BackwardEngine::kWholeGraph for that.");
  return std::move(gradients);
}

void Relay::open() {
  if (target_.is_valid()) {
    next_edges().push_back(std::move(target_));
  }
}

// The graph that hangs on an input may be a chain of thousands of forwards. Whoever takes it down
// asks for this first and then follows the next edges without recursion, so the target must be one.
// Relays of parameters belong to forwards to come as well.
void Relay::release_variables() {
  if (kind_ == Kind::kInput) {
    open();
  }
}

OpensWithRelays::~OpensWithRelays() = default;

RelaySet::RelaySet(std::vector<RoutedTensor> tensors) : tensors_(std::move(tensors)) {
  const size_t num_replicas = tensors_.empty() ? 0 : tensors_[0].replicas.size();
  relays_.resize(num_replicas);
  for (size_t r = 0; r < num_replicas; ++r) {
    relays_[r].reserve(tensors_.size());
    for (size_t i = 0; i < tensors_.size(); ++i) {
      auto relay =
          autograd_fns::make_node<Relay>(Relay::Kind::kParameter, id_, i, tensors_[i].edge);
      relay->add_input_metadata(tensors_[i].replicas[r]);
      relays_[r].push_back(std::move(relay));
    }
  }
}

std::vector<edge_list> RelaySet::edges() const {
  std::vector<edge_list> edges(relays_.size());
  for (size_t r = 0; r < relays_.size(); ++r) {
    edges[r].reserve(relays_[r].size());
    for (const auto& relay : relays_[r]) {
      edges[r].emplace_back(relay, 0);
    }
  }
  return edges;
}

void RelaySet::add_node(std::weak_ptr<OpensWithRelays> node) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_open()) {
    // A backward that records ended while this node's forward was running.
    if (const auto late = node.lock()) {
      late->on_relays_opened();
    }
    return;
  }
  if (nodes_.size() >= 8) {
    nodes_.erase(std::remove_if(nodes_.begin(), nodes_.end(),
                                [](const auto& entry) { return entry.expired(); }),
                 nodes_.end());
  }
  nodes_.push_back(std::move(node));
}

void RelaySet::open() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_open()) {
    return;
  }
  for (const auto& replica : relays_) {
    for (const auto& relay : replica) {
      relay->open();
    }
  }
  for (const auto& entry : nodes_) {
    if (const auto node = entry.lock()) {
      node->on_relays_opened();
    }
  }
  nodes_.clear();
  open_.store(true, std::memory_order_release);
}

std::vector<edge_list> RelayRouter::route(const std::vector<RoutedTensor>& tensors) {
  set_ = std::make_shared<RelaySet>(tensors);
  return tensors.empty() ? std::vector<edge_list>(num_replicas_) : set_->edges();
}

}  // namespace lockstep::parallel::internal
