// SPDX-License-Identifier: Apache-2.0
#include "parallel/data_parallel_core.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "autograd_fns/gather.h"
#include "autograd_fns/node_ptr.h"
#include "comm/device_list.h"
#include "parallel/parallel_apply.h"
#include "parallel/replica_backward.h"
#include "parallel/scatter_arguments.h"
#include "replicate/placement.h"

namespace lockstep::parallel::internal {
namespace {

using replicate::internal::ReplicaState;
namespace variable = torch::autograd::impl;

// The cores whose replicas are running on this thread, innermost first.
struct ActiveCore {
  explicit ActiveCore(const DataParallelCore* active) : core(active), outer(innermost) {
    innermost = this;
  }
  ~ActiveCore() { innermost = outer; }
  ActiveCore(const ActiveCore&) = delete;
  ActiveCore& operator=(const ActiveCore&) = delete;

  static bool contains(const DataParallelCore* core) {
    for (const ActiveCore* active = innermost; active != nullptr; active = active->outer) {
      if (active->core == core) {
        return true;
      }
    }
    return false;
  }

  const DataParallelCore* const core;
  const ActiveCore* const outer;
  static thread_local const ActiveCore* innermost;
};

thread_local const ActiveCore* ActiveCore::innermost = nullptr;

bool all_cpu(c10::ArrayRef<c10::Device> devices) {
  return std::all_of(devices.begin(), devices.end(), [](c10::Device d) { return d.is_cpu(); });
}

bool runs_per_replica(const char* name, BackwardEngine engine, c10::ArrayRef<c10::Device> devices) {
  TORCH_CHECK(engine != BackwardEngine::kPerReplica || all_cpu(devices), "[", name,
              "] BackwardEngine::kPerReplica is for replicas on the CPU, got ", devices[0]);
  return engine == BackwardEngine::kAutomatic ? all_cpu(devices)
                                              : engine == BackwardEngine::kPerReplica;
}

// An embedding with a maximal norm shortens the rows that it looks up, in place.
bool shortens_its_weight(const torch::nn::Module& module) {
  if (const auto* embedding = dynamic_cast<const torch::nn::EmbeddingImpl*>(&module)) {
    return embedding->options.max_norm().has_value();
  }
  const auto* bag = dynamic_cast<const torch::nn::EmbeddingBagImpl*>(&module);
  return bag != nullptr && bag->options.max_norm().has_value();
}

}  // namespace

std::vector<c10::Device> parallel_devices(const char* name, c10::ArrayRef<c10::Device> devices) {
  std::vector<c10::Device> normalized = comm::normalize_devices(name, devices);
  for (size_t i = 1; i < normalized.size(); ++i) {
    TORCH_CHECK(normalized[i].type() == normalized[0].type(), "[", name,
                "] expected devices of one type, got ", normalized[0], " at index 0 and ",
                normalized[i], " at index ", i);
  }
  return normalized;
}

DataParallelCore::DataParallelCore(const char* name, std::shared_ptr<torch::nn::Module> module,
                                   c10::ArrayRef<c10::Device> devices, DataParallelOptions options,
                                   WorkerPool* pool, size_t num_replicas)
    : name_(name),
      module_(std::move(module)),
      devices_(parallel_devices(name, devices)),
      options_(std::move(options)),
      num_replicas_(options_.policy == DevicePolicy::kOneDevice
                        ? 1
                        : std::min(num_replicas, devices_.size())),
      own_pool_(pool == nullptr ? std::make_unique<WorkerPool>() : nullptr),
      pool_(pool == nullptr ? own_pool_.get() : pool),
      generators_(devices_.size()),
      decision_(name_, module_, devices_, options_) {
  TORCH_CHECK(module_ != nullptr, "[", name_, "] expected a module, got null");
  if (num_replicas_ == 1) {
    replicate::internal::check_module_is_on(*module_, devices_[0]);
    return;
  }
  replicate::ReplicateOptions replicate = options_.replicate;
  if (!replicate.executor) {
    replicate.executor = [this](int64_t n, const std::function<void(int64_t)>& task) {
      pool_->run(n, task);
    };
  }
  replicate.writes_parameters =
      [others = options_.replicate.writes_parameters](const torch::nn::Module& part) {
        return shortens_its_weight(part) || (others && others(part));
      };
  const std::vector<c10::Device> used(devices_.begin(),
                                      devices_.begin() + static_cast<int64_t>(num_replicas_));
  if (runs_per_replica(name_, options_.backward, used)) {
    auto relays = std::make_unique<RelayRouter>(num_replicas_);
    relays_ = relays.get();
    state_ = std::make_unique<ReplicaState>(module_, used, replicate, std::move(relays));
  } else {
    state_ = replicate::internal::make_replica_state(module_, used, replicate);
  }
}

DataParallelCore::~DataParallelCore() = default;

std::vector<std::shared_ptr<torch::nn::Module>> DataParallelCore::replicas() {
  if (state_ == nullptr) {
    return {module_};
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  return state_->replicas();
}

void DataParallelCore::check_not_inside() const {
  TORCH_CHECK(!ActiveCore::contains(this), "[", name_,
              "] forward was called from inside the forward of one of its own replicas");
}

std::vector<int64_t> DataParallelCore::sizes_for(const ReplicaCall& call) {
  std::vector<int64_t> sizes = batch_sizes(name_, call, options_.dim, devices_.size());
  if (sizes.size() > 1) {
    const int64_t rows = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    if (decision_.mode_for(rows) == DeviceChoice::kOneDevice) {
      return {rows};
    }
  }
  return sizes;
}

std::vector<at::Tensor> DataParallelCore::run(const ReplicaCall& call) {
  check_not_inside();
  const Joined joined = run_chunks(call, sizes_for(call), options_.output_dims);
  const bool may_vary = options_.policy == DevicePolicy::kAutomatic && devices_.size() > 1 &&
                        !split_tensors(call).empty();
  TORCH_CHECK(
      !joined.has_scalars || !may_vary, "[", name_,
      "] DevicePolicy::kAutomatic cannot be used with a forward that returns scalars: one "
      "device gives one, replicas a vector. Return a value for each row, or use train_step");
  if (joined.made_vectors) {
    TORCH_WARN_ONCE(
        "[", name_,
        "] the replicas' outputs are scalars: they are joined to a vector with one "
        "entry per replica. A mean over the batch is the mean of these, weighted by the "
        "replicas' rows.");
  }
  return joined.tensors;
}

DataParallelCore::Joined DataParallelCore::run_chunks(const ReplicaCall& call,
                                                      const std::vector<int64_t>& sizes,
                                                      c10::ArrayRef<int64_t> output_dims) {
  if (sizes.size() == 1) {
    return run_alone(call, output_dims);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  state_->synchronize();
  generators_.begin();
  return relays_ != nullptr ? run_per_replica(call, sizes, output_dims)
                            : run_whole_graph(call, sizes, output_dims);
}

at::Tensor DataParallelCore::train_step(const ReplicaCall& call, LossReduction reduction) {
  check_not_inside();
  const std::vector<int64_t> sizes = sizes_for(call);
  const auto rows = static_cast<double>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}));
  std::vector<double> weights;
  for (const int64_t size : sizes) {
    const bool mean = reduction == LossReduction::kMean && sizes.size() > 1;
    weights.push_back(mean ? static_cast<double>(size) / rows : 1);
  }
  at::Tensor total;
  if (sizes.size() > 1 && relays_ != nullptr) {
    std::unique_lock<std::mutex> lock(mutex_);
    state_->synchronize();
    generators_.begin();
    Prepared prepared = prepare_per_replica(call, sizes);
    const Chunks chunks = prepared.forward.chunks;
    prepared.node->set_forward(std::move(prepared.forward));
    const auto loss_of = [&](size_t r) {
      return run_replica(call, r, chunks[r], prepared.sources[r])[0];
    };
    // Hooks, which are the user's code, run without the lock.
    total = prepared.node->train(loss_of, weights, [&lock] { lock.unlock(); });
  } else {
    const at::Tensor losses = run_chunks(call, sizes, {}).tensors[0];
    total = sizes.size() == 1
                ? losses.sum()
                : (losses * at::tensor(weights, losses.options().requires_grad(false))).sum();
    check_loss_requires_grad(total.requires_grad());
    total.backward();
  }
  return to_output_device({total.detach()})[0];
}

// One chunk, or nothing to split: the module itself, with no replica and no thread.
DataParallelCore::Joined DataParallelCore::run_alone(const ReplicaCall& call,
                                                     c10::ArrayRef<int64_t> output_dims) {
  // A row by itself is treated as every chunk is: a module may write to it.
  const bool copies = devices_.size() > 1 && options_.policy != DevicePolicy::kOneDevice;
  Tensors moved;
  for (const at::Tensor& tensor : call.tensors) {
    if (!tensor.defined()) {
      moved.push_back(tensor);
    } else if (copies && tensor.device() == devices_[0]) {
      moved.push_back(tensor.clone());
    } else {
      moved.push_back(tensor.to(devices_[0]));
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  const ActiveCore active(this);
  const Tensors result = call.run(0, *module_, moved);
  const auto outputs =
      collect_outputs(name_, {result}, call.placements_of_result(1), output_dims, options_.dim);
  const bool makes_vectors = devices_.size() > 1 && options_.policy == DevicePolicy::kReplicas &&
                             !split_tensors(call).empty();
  Joined joined;
  for (const OutputParts& output : outputs) {
    // One entry per replica, as when there are more chunks.
    const bool vector = output.scalars && makes_vectors;
    joined.tensors.push_back(vector ? output.parts[0].reshape({1}) : output.parts[0]);
    joined.made_vectors = joined.made_vectors || vector;
    joined.has_scalars = joined.has_scalars || output.scalars;
  }
  joined.tensors = to_output_device(std::move(joined.tensors));
  return joined;
}

std::vector<at::Tensor> DataParallelCore::to_output_device(Tensors outputs) const {
  if (options_.output_device.has_value()) {
    const c10::Device device = comm::normalize_device(name_, *options_.output_device);
    for (at::Tensor& output : outputs) {
      output = output.defined() ? output.to(device) : output;
    }
  }
  return outputs;
}

RunOptions DataParallelCore::run_options() const {
  return {/*intra_op_threads=*/options_.threads_per_replica};
}

std::vector<at::Tensor> DataParallelCore::run_replica(const ReplicaCall& call, size_t r,
                                                      const Tensors& chunks,
                                                      const Tensors& sources) {
  for (size_t j = 0; j < sources.size(); ++j) {
    if (sources[j].defined()) {
      const at::NoGradGuard no_grad;
      chunks[j].copy_(sources[j]);
    }
  }
  const ActiveCore active(this);
  const replicate::internal::ReplicaGenerators::Scope draws(generators_, r);
  return call.run(r, *state_->replicas()[r], chunks);
}

std::vector<OutputParts> DataParallelCore::run_replicas(const ReplicaCall& call,
                                                        const Chunks& chunks, const Chunks& sources,
                                                        c10::ArrayRef<int64_t> output_dims) {
  std::vector<std::function<Tensors(const Tensors&)>> calls;
  for (size_t r = 0; r < chunks.size(); ++r) {
    calls.emplace_back([this, r, &call, &sources](const Tensors& tensors) {
      return run_replica(call, r, tensors, sources.empty() ? Tensors() : sources[r]);
    });
  }
  const auto devices = c10::ArrayRef<c10::Device>(devices_).slice(0, chunks.size());
  const auto by_replica = parallel_apply(*pool_, calls, chunks, devices, run_options());
  return collect_outputs(name_, by_replica, call.placements_of_result(chunks.size()), output_dims,
                         options_.dim);
}

DataParallelCore::Joined DataParallelCore::run_whole_graph(const ReplicaCall& call,
                                                           const std::vector<int64_t>& sizes,
                                                           c10::ArrayRef<int64_t> output_dims) {
  const auto devices = c10::ArrayRef<c10::Device>(devices_).slice(0, sizes.size());
  const Chunks chunks =
      scatter_arguments(call, sizes, options_.dim, devices, options_.replicate.collectives);
  const c10::Device destination = options_.output_device.value_or(devices_[0]);
  Joined joined;
  for (OutputParts& output : run_replicas(call, chunks, {}, output_dims)) {
    const at::Tensor& first = output.parts[0];
    joined.has_scalars = joined.has_scalars || output.scalars;
    joined.made_vectors = joined.has_scalars;
    for (size_t r = 0; r < output.parts.size() && output.scalars; ++r) {
      output.parts[r] = output.parts[r].reshape({1});
    }
    if (!first.defined()) {
      joined.tensors.push_back(first);
    } else if (output.whole) {
      joined.tensors.push_back(first.to(destination));
    } else {
      joined.tensors.push_back(autograd_fns::gather(output.parts, destination, output.dim,
                                                    {options_.replicate.collectives}));
    }
  }
  return joined;
}

std::shared_ptr<const SumPlan> DataParallelCore::plan_for(const std::shared_ptr<RelaySet>& relays) {
  if (planned_.lock() != relays) {
    std::vector<int64_t> num_elements;
    for (const auto& tensor : relays->tensors()) {
      num_elements.push_back(tensor.original.numel());
    }
    plan_ = std::make_shared<SumPlan>(num_elements, num_replicas_);
    planned_ = relays;
  }
  return plan_;
}

DataParallelCore::Prepared DataParallelCore::prepare_per_replica(
    const ReplicaCall& call, const std::vector<int64_t>& sizes) {
  // Recorded: the gradient of an input on another device finds its way back.
  Tensors inputs;
  for (const at::Tensor& tensor : call.tensors) {
    inputs.push_back(tensor.defined() ? tensor.to(devices_[0]) : tensor);
  }
  const std::shared_ptr<RelaySet>& relays = relays_->current();
  const bool records = at::GradMode::is_enabled();
  torch::autograd::edge_list edges(inputs.size());
  for (size_t j = 0; j < inputs.size() && records; ++j) {
    if (inputs[j].defined() && inputs[j].requires_grad()) {
      edges[j] = variable::gradient_edge(inputs[j]);
    }
  }
  const auto input_edges = edges;
  for (const auto& tensor : relays->tensors()) {
    edges.push_back(tensor.edge);
  }
  ReplicaRuntime runtime{pool_, run_options(), devices_, &generators_, shared_from_this()};
  auto node = autograd_fns::make_node<ReplicaBackward>(relays, plan_for(relays), std::move(runtime),
                                                       std::move(edges));

  ReplicaForward forward;
  Chunks sources =
      cut_arguments(call, sizes, options_.dim, inputs, input_edges, node->id(), forward);
  return {std::move(node), std::move(forward), std::move(sources)};
}

DataParallelCore::Joined DataParallelCore::run_per_replica(const ReplicaCall& call,
                                                           const std::vector<int64_t>& sizes,
                                                           c10::ArrayRef<int64_t> output_dims) {
  auto [node, forward, sources] = prepare_per_replica(call, sizes);
  Joined joined;
  for (OutputParts& output : run_replicas(call, forward.chunks, sources, output_dims)) {
    const at::Tensor& first = output.parts[0];
    if (!first.defined()) {
      joined.tensors.push_back(first);
      continue;
    }
    joined.made_vectors = joined.made_vectors || output.scalars;
    joined.has_scalars = joined.made_vectors;
    {
      const at::NoGradGuard no_grad;
      joined.tensors.push_back(output.whole     ? first.clone()
                               : output.scalars ? at::stack(output.parts)
                                                : at::cat(output.parts, output.dim));
    }
    const bool needs_gradient =
        std::any_of(output.parts.begin(), output.parts.end(),
                    [](const at::Tensor& part) { return part.requires_grad(); });
    if (at::GradMode::is_enabled() && needs_gradient) {
      torch::autograd::set_history(joined.tensors.back(), node);
      forward.add_output(std::move(output));
    }
  }
  if (!forward.outputs.empty()) {
    node->set_forward(std::move(forward));
    relays_->current()->add_node(node);
  }
  joined.tensors = to_output_device(std::move(joined.tensors));
  return joined;
}

}  // namespace lockstep::parallel::internal
