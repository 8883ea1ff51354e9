// SPDX-License-Identifier: Apache-2.0
#include "parallel/data_parallel_core.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <utility>

#include "autograd_fns/gather.h"
#include "autograd_fns/node_ptr.h"
#include "autograd_fns/scatter.h"
#include "comm/device_list.h"
#include "comm/scatter.h"
#include "parallel/parallel_apply.h"
#include "parallel/replica_backward.h"
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

int64_t wrap_dim(int64_t dim, int64_t rank) { return dim < 0 ? dim + rank : dim; }

// Whether all outputs are scalars. Throws if they cannot be joined along dim.
bool check_outputs(const char* name, c10::ArrayRef<at::Tensor> outputs, int64_t dim) {
  const at::Tensor& first = outputs[0];
  for (size_t r = 0; r < outputs.size(); ++r) {
    const at::Tensor& output = outputs[r];
    TORCH_CHECK(output.defined(), "[", name, "] replica ", r, " returned an undefined tensor");
    TORCH_CHECK(output.dtype() == first.dtype(), "[", name, "] replica ", r, " returned ",
                output.dtype(), " but replica 0 ", first.dtype());
    TORCH_CHECK(output.dim() == first.dim(), "[", name, "] cannot join the outputs along dim ", dim,
                ": replica ", r, " returned shape ", output.sizes(), " but replica 0 ",
                first.sizes());
    if (first.dim() == 0) {
      continue;
    }
    TORCH_CHECK(dim >= -first.dim() && dim < first.dim(), "[", name,
                "] cannot join the outputs along dim ", dim, ": replica ", r, " returned shape ",
                output.sizes(), ", whose dims are ", -first.dim(), " to ", first.dim() - 1);
    for (int64_t d = 0; d < first.dim(); ++d) {
      TORCH_CHECK(d == wrap_dim(dim, first.dim()) || output.size(d) == first.size(d), "[", name,
                  "] cannot join the outputs along dim ", dim, ": replica ", r, " returned shape ",
                  output.sizes(), " but replica 0 ", first.sizes());
    }
  }
  return first.dim() == 0;
}

// An embedding with a maximal norm shortens the rows that it looks up, in place.
bool shortens_its_weight(const torch::nn::Module& module) {
  if (const auto* embedding = dynamic_cast<const torch::nn::EmbeddingImpl*>(&module)) {
    return embedding->options.max_norm().has_value();
  }
  const auto* bag = dynamic_cast<const torch::nn::EmbeddingBagImpl*>(&module);
  return bag != nullptr && bag->options.max_norm().has_value();
}

void warn_scalars(const char* name) {
  TORCH_WARN_ONCE("[", name,
                  "] the replicas' outputs are scalars: they are joined to a vector with "
                  "one entry per replica. A mean over the batch is the mean of these, weighted by "
                  "the replicas' rows.");
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

std::vector<int64_t> batch_sizes(const char* name, c10::ArrayRef<at::Tensor> inputs, int64_t dim,
                                 size_t num_devices) {
  int64_t rows = 0;
  for (size_t j = 0; j < inputs.size(); ++j) {
    TORCH_CHECK(inputs[j].defined(), "[", name, "] input ", j, " is undefined");
    const int64_t rank = inputs[j].dim();
    TORCH_CHECK(rank > 0, "[", name, "] input ", j, " has no dimension to be split along");
    TORCH_CHECK(dim >= -rank && dim < rank, "[", name, "] expected dim from ", -rank, " to ",
                rank - 1, " for input ", j, " of shape ", inputs[j].sizes(), ", got ", dim);
    const int64_t size = inputs[j].size(dim);
    TORCH_CHECK(j == 0 || size == rows, "[", name, "] input ", j, " has size ", size, " along dim ",
                dim, ", but input 0 has ", rows);
    rows = size;
  }
  return comm::even_sizes(rows, static_cast<int64_t>(num_devices));
}

DataParallelCore::DataParallelCore(const char* name, std::shared_ptr<torch::nn::Module> module,
                                   c10::ArrayRef<c10::Device> devices, DataParallelOptions options,
                                   WorkerPool* pool)
    : name_(name),
      module_(std::move(module)),
      devices_(parallel_devices(name, devices)),
      options_(std::move(options)),
      own_pool_(pool == nullptr ? std::make_unique<WorkerPool>() : nullptr),
      pool_(pool == nullptr ? own_pool_.get() : pool) {
  TORCH_CHECK(module_ != nullptr, "[", name_, "] expected a module, got null");
  if (devices_.size() == 1) {
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
  if (runs_per_replica(name_, options_.backward, devices_)) {
    auto relays = std::make_unique<RelayRouter>(devices_.size());
    relays_ = relays.get();
    state_ = std::make_unique<ReplicaState>(module_, devices_, replicate, std::move(relays));
  } else {
    state_ = replicate::internal::make_replica_state(module_, devices_, replicate);
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

at::Tensor DataParallelCore::forward(c10::ArrayRef<at::Tensor> inputs,
                                     const ForwardFunction& function) {
  TORCH_CHECK(!ActiveCore::contains(this), "[", name_,
              "] forward was called from inside the forward of one of its own replicas");
  if (inputs.empty()) {
    return run_alone(inputs, function);
  }
  const std::vector<int64_t> sizes = batch_sizes(name_, inputs, options_.dim, devices_.size());
  if (sizes.size() == 1) {
    return run_alone(inputs, function);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  state_->synchronize();
  return relays_ != nullptr ? run_per_replica(inputs, sizes, function)
                            : run_whole_graph(inputs, sizes, function);
}

// One chunk: the module itself, with no replica and no thread.
at::Tensor DataParallelCore::run_alone(c10::ArrayRef<at::Tensor> inputs,
                                       const ForwardFunction& function) {
  // A row by itself gets memory of its own as every chunk does: a module may write to its input.
  const bool copies = devices_.size() > 1;
  std::vector<at::Tensor> moved;
  for (const at::Tensor& input : inputs) {
    moved.push_back(copies && input.device() == devices_[0] ? input.clone()
                                                            : input.to(devices_[0]));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  const ActiveCore active(this);
  at::Tensor output = function(*module_, moved);
  TORCH_CHECK(output.defined(), "[", name_, "] replica 0 returned an undefined tensor");
  // One entry per replica, as when there are more chunks.
  if (output.dim() == 0 && devices_.size() > 1 && !inputs.empty()) {
    warn_scalars(name_);
    output = output.reshape({1});
  }
  return to_output_device(std::move(output));
}

at::Tensor DataParallelCore::to_output_device(at::Tensor output) const {
  return options_.output_device.has_value()
             ? output.to(comm::normalize_device(name_, *options_.output_device))
             : output;
}

std::vector<at::Tensor> DataParallelCore::run_replicas(const Chunks& chunks,
                                                       const ForwardFunction& function,
                                                       const Chunks& sources) {
  std::vector<std::function<at::Tensor(const std::vector<at::Tensor>&)>> calls;
  for (size_t r = 0; r < chunks.size(); ++r) {
    calls.emplace_back([this, r, &function, &sources](const std::vector<at::Tensor>& arguments) {
      for (size_t j = 0; !sources.empty() && j < arguments.size(); ++j) {
        const at::NoGradGuard no_grad;
        arguments[j].copy_(sources[r][j]);
      }
      const ActiveCore active(this);
      return function(*state_->replicas()[r], arguments);
    });
  }
  RunOptions run_options;
  run_options.intra_op_threads = options_.threads_per_replica;
  return parallel_apply(*pool_, calls, chunks,
                        c10::ArrayRef<c10::Device>(devices_).slice(0, chunks.size()), run_options);
}

at::Tensor DataParallelCore::run_whole_graph(c10::ArrayRef<at::Tensor> inputs,
                                             const std::vector<int64_t>& sizes,
                                             const ForwardFunction& function) {
  const auto devices = c10::ArrayRef<c10::Device>(devices_).slice(0, sizes.size());
  comm::ScatterOptions scatter;
  scatter.chunk_sizes = sizes;
  scatter.dim = options_.dim;
  scatter.collectives = options_.replicate.collectives;
  Chunks chunks(sizes.size());
  for (const at::Tensor& input : inputs) {
    auto pieces = autograd_fns::scatter(input, devices, scatter);
    for (size_t r = 0; r < pieces.size(); ++r) {
      chunks[r].push_back(std::move(pieces[r]));
    }
  }
  const std::vector<at::Tensor> outputs = run_replicas(chunks, function, {});
  const bool scalars = check_outputs(name_, outputs, options_.dim);
  return autograd_fns::gather(outputs, options_.output_device.value_or(devices_[0]),
                              scalars ? 0 : options_.dim, {options_.replicate.collectives});
}

at::Tensor DataParallelCore::run_per_replica(c10::ArrayRef<at::Tensor> given,
                                             const std::vector<int64_t>& sizes,
                                             const ForwardFunction& function) {
  // Recorded: the gradient of an input on another device finds its way back.
  std::vector<at::Tensor> inputs;
  for (const at::Tensor& input : given) {
    inputs.push_back(input.to(devices_[0]));
  }
  const std::shared_ptr<RelaySet>& relays = relays_->current();
  if (planned_.lock() != relays) {
    std::vector<int64_t> num_elements;
    for (const auto& tensor : relays->tensors()) {
      num_elements.push_back(tensor.original.numel());
    }
    plan_ = std::make_shared<SumPlan>(num_elements, devices_.size());
    planned_ = relays;
  }
  const bool records = at::GradMode::is_enabled();
  torch::autograd::edge_list edges(inputs.size());
  for (size_t j = 0; j < inputs.size() && records; ++j) {
    if (inputs[j].requires_grad()) {
      edges[j] = variable::gradient_edge(inputs[j]);
    }
  }
  const auto input_edges = edges;
  for (const auto& tensor : relays->tensors()) {
    edges.push_back(tensor.edge);
  }
  ReplicaRuntime runtime{pool_, {}, devices_, shared_from_this()};
  runtime.run_options.intra_op_threads = options_.threads_per_replica;
  auto node =
      autograd_fns::make_node<ReplicaBackward>(relays, plan_, std::move(runtime), std::move(edges));

  ReplicaForward forward;
  forward.dim = options_.dim;
  forward.input_dim = options_.dim;
  forward.chunks.resize(sizes.size());
  forward.input_relays.resize(sizes.size());
  // Chunks have memory of their own: a module may write to its input, and must then neither change
  // the caller's batch nor raise the version of what another replica has saved.
  Chunks sources(sizes.size());
  int64_t begin = 0;
  for (size_t r = 0; r < sizes.size(); ++r) {
    const at::NoGradGuard no_grad;
    for (size_t j = 0; j < inputs.size(); ++j) {
      sources[r].push_back(inputs[j].narrow(options_.dim, begin, sizes[r]).detach());
      at::Tensor chunk = at::empty_like(sources[r].back());
      std::shared_ptr<Relay> relay;
      if (input_edges[j].is_valid()) {
        // Through a recorded narrow(), which knows where in the input the chunk's gradient belongs.
        const at::AutoGradMode recording(true);
        const at::Tensor part = inputs[j].narrow(options_.dim, begin, sizes[r]);
        relay = autograd_fns::make_node<Relay>(Relay::Kind::kInput, node->id(), j,
                                               variable::gradient_edge(part));
        relay->add_input_metadata(chunk);
        variable::set_gradient_edge(chunk, {relay, 0});
      }
      forward.chunks[r].push_back(std::move(chunk));
      forward.input_relays[r].push_back(std::move(relay));
    }
    begin += sizes[r];
  }

  forward.outputs = run_replicas(forward.chunks, function, sources);
  forward.scalars = check_outputs(name_, forward.outputs, options_.dim);
  if (forward.scalars) {
    warn_scalars(name_);
  }
  at::Tensor output;
  bool needs_gradient = false;
  {
    const at::NoGradGuard no_grad;
    output = forward.scalars ? at::stack(forward.outputs) : at::cat(forward.outputs, options_.dim);
    for (const at::Tensor& part : forward.outputs) {
      forward.sizes.push_back(forward.scalars ? 1 : part.size(options_.dim));
      needs_gradient = needs_gradient || part.requires_grad();
    }
  }
  if (records && needs_gradient) {
    node->set_forward(std::move(forward));
    torch::autograd::set_history(output, node);
    relays->add_node(node);
  }
  return to_output_device(std::move(output));
}

}  // namespace lockstep::parallel::internal
