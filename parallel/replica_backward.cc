// SPDX-License-Identifier: Apache-2.0
#include "parallel/replica_backward.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <cstring>
#include <mutex>
#include <utility>

#include "parallel/failure.h"
#include "parallel/spin_wait.h"

namespace lockstep::parallel::internal {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::Node;
using torch::autograd::variable_list;
namespace variable = torch::autograd::impl;

namespace {

// AccumulateGrad guards .grad with the mutex that every node has.
struct NodeMutex : Node {
  static std::mutex& of(Node& node) { return node.*(&NodeMutex::mutex_); }
};

bool whole_graph_is_wanted() {
  const auto* info = torch::autograd::get_current_graph_task_exec_info();
  return info == nullptr || info->empty();
}

// The engine's own message leaves open whose graph was gone through twice.
void explain_freed_values(c10::Error& error) {
  if (std::strstr(error.what_without_backtrace(), "backward through the graph a second time")) {
    error.add_context(
        "[DataParallel] The replicas share a part of the graph, such as a tensor that was computed "
        "outside of the module and is used in its forward: the first replica's backward freed it. "
        "Specify retain_graph=true, pass the tensor as an input, or use "
        "BackwardEngine::kWholeGraph.");
  }
}

}  // namespace

ReplicaBackward::ReplicaBackward(std::shared_ptr<RelaySet> relays,
                                 std::shared_ptr<const SumPlan> plan, ReplicaRuntime runtime,
                                 edge_list&& next_edges)
    : Node(std::move(next_edges)),
      relays_(std::move(relays)),
      plan_(std::move(plan)),
      runtime_(std::move(runtime)),
      num_inputs_(num_outputs() - relays_->tensors().size()) {}

variable_list ReplicaBackward::apply(variable_list&& gradients) {
  if (whole_) {
    return split(gradients[0]);
  }
  const bool create = at::GradMode::is_enabled();
  const bool keep = create || torch::autograd::get_current_graph_task_keep_graph();
  TORCH_CHECK(!(keep ? released_.load() : released_.exchange(true)),
              "[DataParallel] trying to backward through the graph of a forward a second time: its "
              "saved values are freed after the first backward. Specify retain_graph=true there.");
  variable_list results(num_outputs());
  if (!gradients[0].defined()) {
    return results;
  }
  const size_t num_replicas = forward_.outputs.size();
  const size_t num_tensors = relays_->tensors().size();
  // Asked here, since the engine's answer depends on the thread.
  const bool everything = whole_graph_is_wanted();
  std::vector<bool> wanted(num_outputs());
  for (size_t e = 0; e < wanted.size(); ++e) {
    wanted[e] = task_should_compute_output(e);
  }

  const variable_list slices = split(gradients[0]);
  std::vector<Pass> passes(num_replicas);
  std::vector<variable_list*> delivered;
  for (Pass& pass : passes) {
    pass = {relays_->id(), id_, variable_list(num_tensors), variable_list(num_inputs_)};
    delivered.push_back(&pass.parameters);
  }
  GradientSum sum(*plan_, delivered, num_tensors);
  Barrier barrier(static_cast<int64_t>(num_replicas));
  std::atomic<bool> failed{false};
  variable_list sums;
  const auto thrown = runtime_.pool->try_run(
      static_cast<int64_t>(num_replicas),
      [&](int64_t r) {
        // Every worker comes to every barrier, whatever happens in between.
        std::exception_ptr error;
        const auto attempt = [&](const auto& phase) {
          try {
            if (!failed.load()) {
              phase();
            }
          } catch (...) {
            error = std::current_exception();
            failed = true;
          }
        };
        try {
          run_replica(r, slices[r], passes[r], {keep, create, everything, wanted});
          if (!keep) {
            forward_.outputs[r].reset();  // and with it the graph, where it was made
          }
        } catch (c10::Error& freed) {
          explain_freed_values(freed);
          error = std::current_exception();
          failed = true;
        } catch (...) {
          error = std::current_exception();
          failed = true;
        }
        if (!create) {
          barrier.arrive_and_wait();
          attempt([&] { sum.run(r, num_replicas); });
          barrier.arrive_and_wait();
          if (r == 0) {
            attempt([&] { sums = sum.take(); });
          }
          barrier.arrive_and_wait();
          passes[r].parameters.clear();  // freed where they were made
        }
        if (error != nullptr) {
          std::rethrow_exception(error);
        }
      },
      runtime_.run_options);
  throw_first_failure(thrown, runtime_.devices);

  if (create) {
    sums = sum_recorded(passes);
    // Not before this backward is over: the engine has counted the edges as they are.
    Engine::get_default_engine().queue_callback(
        [relays = relays_, self = getptr()] { relays->open(); });
  }
  for (size_t i = 0; i < num_tensors; ++i) {
    if (sums[i].defined() && !(everything && !create && set_directly(i, sums[i]))) {
      results[num_inputs_ + i] = std::move(sums[i]);
    }
  }
  for (size_t j = 0; j < num_inputs_; ++j) {
    if (wanted[j]) {
      results[j] = join_input_gradient(passes, j);
    }
  }
  return results;
}

// The gradient of each replica's output.
variable_list ReplicaBackward::split(const at::Tensor& gradient) const {
  variable_list slices(forward_.sizes.size());
  if (!gradient.defined()) {
    return slices;
  }
  int64_t begin = 0;
  for (size_t r = 0; r < slices.size(); ++r) {
    slices[r] = forward_.scalars ? gradient.select(0, static_cast<int64_t>(r))
                                 : gradient.narrow(forward_.dim, begin, forward_.sizes[r]);
    begin += forward_.sizes[r];
  }
  return slices;
}

void ReplicaBackward::run_replica(size_t replica, const at::Tensor& gradient, Pass& pass,
                                  const Request& request) const {
  const at::Tensor& output = forward_.outputs[replica];
  if (!output.requires_grad()) {
    return;
  }
  const PassScope scope(pass);
  Engine& engine = Engine::get_default_engine();
  const edge_list root = {variable::gradient_edge(output)};
  if (request.everything) {
    engine.execute(root, {gradient}, request.keep, request.create, /*accumulate_grad=*/true, {});
    return;
  }
  edge_list targets;
  std::vector<at::Tensor*> places;
  for (size_t j = 0; j < num_inputs_; ++j) {
    if (forward_.input_relays[replica][j] != nullptr && request.wanted[j]) {
      targets.emplace_back(forward_.input_relays[replica][j], 0);
      places.push_back(&pass.inputs[j]);
    }
  }
  for (size_t i = 0; i < relays_->tensors().size(); ++i) {
    if (request.wanted[num_inputs_ + i]) {
      targets.emplace_back(relays_->relay(replica, i), 0);
      places.push_back(&pass.parameters[i]);
    }
  }
  if (targets.empty()) {
    return;
  }
  variable_list found = engine.execute(root, {gradient}, request.keep, request.create,
                                       /*accumulate_grad=*/false, targets);
  for (size_t t = 0; t < targets.size(); ++t) {
    *places[t] = std::move(found[t]);
  }
}

variable_list ReplicaBackward::sum_recorded(const std::vector<Pass>& passes) const {
  variable_list sums(relays_->tensors().size());
  for (size_t i = 0; i < sums.size(); ++i) {
    for (const Pass& pass : passes) {
      sums[i] = add_gradients(sums[i], pass.parameters[i]);
    }
  }
  return sums;
}

at::Tensor ReplicaBackward::join_input_gradient(const std::vector<Pass>& passes,
                                                size_t input) const {
  bool any = false;
  std::vector<at::Tensor> parts;
  for (size_t r = 0; r < passes.size(); ++r) {
    const at::Tensor& part = passes[r].inputs[input];
    any = any || part.defined();
    parts.push_back(part.defined() ? part : at::zeros_like(forward_.chunks[r][input].detach()));
  }
  return any ? at::cat(parts, forward_.input_dim) : at::Tensor();
}

// Puts the sum where AccumulateGrad would, for a third of the cost, if that is all it would do.
bool ReplicaBackward::set_directly(size_t tensor, at::Tensor& gradient) const {
  const auto& routed = relays_->tensors()[tensor];
  Node& accumulator = *routed.edge.function;
  const at::Tensor& original = routed.original;
  if (!original.is_leaf() || !original.requires_grad()) {
    return false;
  }
  const std::lock_guard<std::mutex> lock(NodeMutex::of(accumulator));
  if (original.grad().defined() || original.layout() != c10::kStrided ||
      gradient.layout() != c10::kStrided || gradient.strides() != original.strides() ||
      gradient.sizes() != original.sizes() || gradient.dtype() != original.dtype() ||
      gradient.use_count() != 1 || !accumulator.tensor_pre_hooks().empty() ||
      !accumulator.pre_hooks().empty() || !accumulator.post_hooks().empty() ||
      accumulator.tensor_post_acc_grad_hooks() != nullptr) {
    return false;
  }
  original.mutable_grad() = gradient.detach();
  return true;
}

void ReplicaBackward::release_variables() {
  // Once whole, the graphs of the replicas hang on the next edges and free their own values.
  forward_.outputs.clear();
  forward_.chunks.clear();
  // What else holds a part of the graph, such as a module that remembers its last output, may still
  // send gradients: without this node in between.
  open_input_relays();
  forward_.input_relays.clear();
  released_ = true;
}

void ReplicaBackward::open_input_relays() {
  for (const auto& relays : forward_.input_relays) {
    for (const auto& relay : relays) {
      if (relay != nullptr) {
        relay->open();
      }
    }
  }
}

void ReplicaBackward::on_relays_opened() {
  if (released_) {
    return;
  }
  open_input_relays();
  edge_list roots;
  for (const at::Tensor& output : forward_.outputs) {
    roots.push_back(output.requires_grad() ? variable::gradient_edge(output) : Edge());
  }
  next_edges() = std::move(roots);
  whole_ = true;
}

}  // namespace lockstep::parallel::internal
