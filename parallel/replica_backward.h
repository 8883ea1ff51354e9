// SPDX-License-Identifier: Apache-2.0
// replica_backward.h: the one node that stands for all CPU replicas in the user's graph.
// Internal to parallel. See Note [Backward In The Replicas' Threads].
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "parallel/gradient_sum.h"
#include "parallel/join_outputs.h"
#include "parallel/relay.h"
#include "parallel/worker_pool.h"
#include "replicate/replica_generators.h"

namespace lockstep::parallel::internal {

// What one forward leaves behind for its backward.
struct ReplicaForward {
  // An output of the node: what the replicas returned, each part with its own graph.
  struct Output {
    OutputParts joined;
    std::vector<int64_t> sizes;  // of the parts along the dim they are joined along
  };
  void add_output(OutputParts output);

  std::vector<Output> outputs;  // those that need a gradient, in order

  // How the gradients of the chunks become that of the input: added up, or joined along dim.
  struct InputJoin {
    bool whole = false;
    int64_t dim = 0;
  };
  std::vector<InputJoin> input_joins;                             // by input
  std::vector<std::vector<at::Tensor>> chunks;                    // by replica, then input
  std::vector<std::vector<std::shared_ptr<Relay>>> input_relays;  // null where no gradient is due
};

// Throws a c10::Error for train_step unless it does.
void check_loss_requires_grad(bool requires_grad);

// How a node runs its replicas.
struct ReplicaRuntime {
  WorkerPool* pool = nullptr;
  RunOptions run_options;
  std::vector<c10::Device> devices;
  replicate::internal::ReplicaGenerators* generators = nullptr;
  std::shared_ptr<void> owner;  // keeps all of it, the replicas and their module alive
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

  // Runs the replicas' losses and, in the same tasks, their backward, without a graph of the
  // user's: loss_of(r) is called in replica r's thread and returns its scalar loss, which counts
  // weights[r] times. Gradients go where backward() would put them. Call it once, instead of all
  // use in a graph. replicas_done() is called when the replicas are, before hooks of the module's
  // parameters and the graphs of inputs run. Returns the weighted total, detached.
  at::Tensor train(const std::function<at::Tensor(size_t)>& loss_of,
                   const std::vector<double>& weights, const std::function<void()>& replicas_done);

 private:
  // What the backward that is running asks for.
  struct Request {
    bool keep;
    bool create;
    bool everything;                  // all leaves, not only some named ones
    const std::vector<bool>& wanted;  // by output
  };

  // The gradients of the replicas' outputs, by output and replica; undefined where there is none.
  using Slices = std::vector<torch::autograd::variable_list>;
  Slices split(const torch::autograd::variable_list& gradients) const;
  void run_replica(size_t replica, const Slices& slices, Pass& pass, const Request& request) const;

  struct Gradients {
    std::vector<Pass> passes;                   // by replica
    torch::autograd::variable_list parameters;  // their sums, unless the backward is recorded
  };
  // Calls prepare(r), which may still fill in slices and outputs, and runs the backward of replica
  // r, in its thread, and adds up.
  Gradients run_passes(const Request& request, const Slices& slices,
                       const std::function<void(size_t)>& prepare);
  // Sets gradients of parameters where it may, and returns the rest by output of this node.
  torch::autograd::variable_list deliver(const Request& request, Gradients found) const;
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
