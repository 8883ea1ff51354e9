// SPDX-License-Identifier: Apache-2.0
// replica_backward.h: the one node that stands for all CPU replicas in the user's graph.
// Internal to parallel. See Note [Backward In The Replicas' Threads].
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/gradient_sum.h"
#include "parallel/relay.h"
#include "parallel/worker_pool.h"

namespace lockstep::parallel::internal {

// What one forward leaves behind for its backward.
struct ReplicaForward {
  std::vector<at::Tensor> outputs;  // by replica, each with its own graph
  std::vector<int64_t> sizes;       // of the outputs along dim; all 1 if they were scalars
  int64_t dim = 0;
  bool scalars = false;  // outputs without dimension, stacked to a vector

  std::vector<std::vector<at::Tensor>> chunks;                    // by replica, then input
  std::vector<std::vector<std::shared_ptr<Relay>>> input_relays;  // null where no gradient is due
  int64_t input_dim = 0;
};

// How a node runs its replicas.
struct ReplicaRuntime {
  WorkerPool* pool = nullptr;
  RunOptions run_options;
  std::vector<c10::Device> devices;
  std::shared_ptr<void> owner;  // keeps the pool, the replicas and their module alive
};

class ReplicaBackward : public torch::autograd::Node, public OpensWithRelays {
 public:
  // Output j is the gradient of inputs[j]; output inputs.size() + i that of relays->tensors()[i].
  ReplicaBackward(std::shared_ptr<RelaySet> relays, std::shared_ptr<const SumPlan> plan,
                  ReplicaRuntime runtime, torch::autograd::edge_list&& next_edges);

  std::string name() const override { return "lockstep::ReplicaBackward"; }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  void release_variables() override;
  void on_relays_opened() override;

  OwnerId id() const { return id_; }

  // Must be called once, before the node is used: the relays of the inputs need its id.
  void set_forward(ReplicaForward forward) { forward_ = std::move(forward); }

 private:
  // What the backward that is running asks for.
  struct Request {
    bool keep;
    bool create;
    bool everything;                  // all leaves, not only some named ones
    const std::vector<bool>& wanted;  // by output
  };

  torch::autograd::variable_list split(const at::Tensor& gradient) const;
  void run_replica(size_t replica, const at::Tensor& gradient, Pass& pass,
                   const Request& request) const;
  torch::autograd::variable_list sum_recorded(const std::vector<Pass>& passes) const;
  at::Tensor join_input_gradient(const std::vector<Pass>& passes, size_t input) const;
  void open_input_relays();
  bool set_directly(size_t tensor, at::Tensor& gradient) const;

  const OwnerId id_ = next_owner_id();
  const std::shared_ptr<RelaySet> relays_;
  const std::shared_ptr<const SumPlan> plan_;
  const ReplicaRuntime runtime_;
  const size_t num_inputs_;
  ReplicaForward forward_;
  std::atomic<bool> released_{false};
  bool whole_ = false;  // the relays are open, and the next edges lead into the replicas' graphs
};

}  // namespace lockstep::parallel::internal
