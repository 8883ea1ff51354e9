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

#include <algorithm>
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
        "Specify retain_graph=true, pass the tensor as an argument (in to_all_replicas() if it "
        "does not belong to rows), or use "
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

void check_loss_requires_grad(bool requires_grad) {
  TORCH_CHECK(
      requires_grad,
      "[DataParallel] train_step: expected a loss that requires grad, but no replica's does: "
      "grad mode is off, everything is frozen, or it was detached");
}

void ReplicaForward::add_output(OutputParts output) {
  std::vector<int64_t> sizes = sizes_of(output);
  outputs.push_back({std::move(output), std::move(sizes)});
}

variable_list ReplicaBackward::apply(variable_list&& gradients) {
  if (whole_) {
    variable_list all;
    for (const variable_list& slices : split(gradients)) {
      all.insert(all.end(), slices.begin(), slices.end());
    }
    return all;
  }
  const bool create = at::GradMode::is_enabled();
  const bool keep = create || torch::autograd::get_current_graph_task_keep_graph();
  TORCH_CHECK(!(keep ? released_.load() : released_.exchange(true)),
              "[DataParallel] trying to backward through the graph of a forward a second time: its "
              "saved values are freed after the first backward. Specify retain_graph=true there.");
  variable_list results(num_outputs());
  if (std::none_of(gradients.begin(), gradients.end(),
                   [](const at::Tensor& gradient) { return gradient.defined(); })) {
    return results;
  }
  std::vector<bool> wanted(num_outputs());
  for (size_t e = 0; e < wanted.size(); ++e) {
    wanted[e] = task_should_compute_output(e);
  }
  // Asked here, since the engine's answer depends on the thread.
  const Request request{keep, create, whole_graph_is_wanted(), wanted};
  Slices slices = split(gradients);
  Gradients found = run_passes(request, slices, [](size_t) {});
  if (create) {
    found.parameters = sum_recorded(found.passes);
    // Not before this backward is over: the engine has counted the edges as they are.
    Engine::get_default_engine().queue_callback(
        [relays = relays_, self = getptr()] { relays->open(); });
  }
  return deliver(request, std::move(found));
}

at::Tensor ReplicaBackward::train(const std::function<at::Tensor(size_t)>& loss_of,
                                  const std::vector<double>& weights,
                                  const std::function<void()>& replicas_done) {
  OutputParts losses;
  losses.parts.resize(weights.size());
  losses.scalars = true;
  forward_.outputs.push_back({losses, std::vector<int64_t>(weights.size(), 1)});
  const std::vector<bool> wanted(num_outputs(), true);
  const Request request{/*keep=*/false, /*create=*/false, /*everything=*/true, wanted};
  Slices slices(1, variable_list(weights.size()));
  variable_list values(weights.size());
  std::atomic<bool> needs_gradient{false};
  released_ = true;  // no backward comes after this one
  Gradients found = run_passes(request, slices, [&](size_t r) {
    const at::Tensor loss = loss_of(r);
    values[r] = loss.detach();
    if (loss.requires_grad()) {
      slices[0][r] = at::full_like(values[r], weights[r]);
      forward_.outputs[0].joined.parts[r] = loss;
      needs_gradient = true;
    }
  });
  check_loss_requires_grad(needs_gradient);
  replicas_done();
  const at::NoGradGuard no_grad;
  variable_list left = deliver(request, std::move(found));
  edge_list roots;
  variable_list gradients;
  for (size_t e = 0; e < left.size(); ++e) {
    if (left[e].defined() && next_edge(e).is_valid()) {
      roots.push_back(next_edge(e));
      gradients.push_back(std::move(left[e]));
    }
  }
  if (!roots.empty()) {
    Engine::get_default_engine().execute(roots, gradients, false, false, true, {});
  }
  at::Tensor total = values[0] * weights[0];
  for (size_t r = 1; r < values.size(); ++r) {
    total += values[r] * weights[r];
  }
  return total;
}

ReplicaBackward::Gradients ReplicaBackward::run_passes(const Request& request, const Slices& slices,
                                                       const std::function<void(size_t)>& prepare) {
  const size_t num_replicas = forward_.chunks.size();
  const size_t num_tensors = relays_->tensors().size();
  Gradients found;
  std::vector<Pass>& passes = found.passes;
  passes.resize(num_replicas);
  std::vector<variable_list*> delivered;
  for (Pass& pass : passes) {
    pass = {relays_->id(), id_, variable_list(num_tensors), variable_list(num_inputs_)};
    delivered.push_back(&pass.parameters);
  }
  GradientSum sum(*plan_, delivered, num_tensors);
  Barrier barrier(static_cast<int64_t>(num_replicas));
  std::atomic<bool> failed{false};
  const auto thrown = runtime_.pool->try_run(
      static_cast<int64_t>(num_replicas),
      [&](int64_t r) {
        const replicate::internal::ReplicaGenerators::Scope draws(*runtime_.generators, r);
        // Every worker comes to every barrier, whatever happens in between.
        std::exception_ptr error;
        const auto attempt = [&](const auto& phase) {
          const at::NoGradGuard no_grad;
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
          prepare(r);
          run_replica(r, slices, passes[r], request);
          for (ReplicaForward::Output& output : forward_.outputs) {
            if (!request.keep && static_cast<size_t>(r) < output.joined.parts.size()) {
              output.joined.parts[r].reset();  // and with it the graph, where it was made
            }
          }
        } catch (c10::Error& freed) {
          explain_freed_values(freed);
          error = std::current_exception();
          failed = true;
        } catch (...) {
          error = std::current_exception();
          failed = true;
        }
        if (!request.create) {
          barrier.arrive_and_wait();
          attempt([&] { sum.run(r, num_replicas); });
          barrier.arrive_and_wait();
          if (r == 0) {
            attempt([&] { found.parameters = sum.take(); });
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

  return found;
}

variable_list ReplicaBackward::deliver(const Request& request, Gradients found) const {
  variable_list results(num_outputs());
  for (size_t i = 0; i < found.parameters.size(); ++i) {
    at::Tensor& sum = found.parameters[i];
    const bool direct = request.everything && !request.create;
    if (sum.defined() && !(direct && set_directly(i, sum))) {
      results[num_inputs_ + i] = std::move(sum);
    }
  }
  for (size_t j = 0; j < num_inputs_; ++j) {
    if (request.wanted[j] && next_edge(j).is_valid()) {
      results[j] = join_input_gradient(found.passes, j);
    }
  }
  return results;
}

ReplicaBackward::Slices ReplicaBackward::split(const variable_list& gradients) const {
  Slices slices;
  for (size_t k = 0; k < forward_.outputs.size(); ++k) {
    const auto& [output, sizes] = forward_.outputs[k];
    slices.emplace_back(sizes.size());
    int64_t begin = 0;
    for (size_t r = 0; r < sizes.size() && gradients[k].defined(); ++r) {
      slices[k][r] = output.whole     ? gradients[k]
                     : output.scalars ? gradients[k].select(0, static_cast<int64_t>(r))
                                      : gradients[k].narrow(output.dim, begin, sizes[r]);
      begin += sizes[r];
    }
  }
  return slices;
}

void ReplicaBackward::run_replica(size_t replica, const Slices& slices, Pass& pass,
                                  const Request& request) const {
  edge_list roots;
  variable_list gradients;
  for (size_t k = 0; k < slices.size(); ++k) {
    if (replica < slices[k].size() && slices[k][replica].defined() &&
        forward_.outputs[k].joined.parts[replica].requires_grad()) {
      roots.push_back(variable::gradient_edge(forward_.outputs[k].joined.parts[replica]));
      gradients.push_back(slices[k][replica]);
    }
  }
  if (roots.empty()) {
    return;
  }
  const PassScope scope(pass);
  Engine& engine = Engine::get_default_engine();
  if (request.everything) {
    engine.execute(roots, gradients, request.keep, request.create, /*accumulate_grad=*/true, {});
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
  variable_list found = engine.execute(roots, gradients, request.keep, request.create,
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
  if (forward_.input_joins[input].whole) {
    at::Tensor sum;
    for (const Pass& pass : passes) {
      sum = add_gradients(sum, pass.inputs[input]);
    }
    return sum;
  }
  bool any = false;
  std::vector<at::Tensor> parts;
  for (size_t r = 0; r < passes.size(); ++r) {
    const at::Tensor& part = passes[r].inputs[input];
    any = any || part.defined();
    parts.push_back(part.defined() ? part : at::zeros_like(forward_.chunks[r][input].detach()));
  }
  return any ? at::cat(parts, forward_.input_joins[input].dim) : at::Tensor();
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
  for (ReplicaForward::Output& output : forward_.outputs) {
    output.joined.parts.clear();  // but not the sizes, by which a later backward splits
  }
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
  for (const auto& output : forward_.outputs) {
    for (const at::Tensor& part : output.joined.parts) {
      roots.push_back(part.requires_grad() ? variable::gradient_edge(part) : Edge());
    }
  }
  next_edges() = std::move(roots);
  whole_ = true;
}

}  // namespace lockstep::parallel::internal
