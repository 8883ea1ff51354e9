// SPDX-License-Identifier: Apache-2.0
#include "replicate/replica_state.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_map>
#include <utility>

#include "comm/broadcast.h"
#include "comm/current_streams.h"
#include "comm/device_list.h"
#include "replicate/placement.h"
#include "replicate/sum_router.h"

namespace lockstep::replicate::internal {
namespace {

using torch::autograd::Edge;
namespace variable = torch::autograd::impl;

constexpr size_t kAhead = 8;  // tensors; far enough for their cache lines to arrive from memory

void run_serially(int64_t n, const std::function<void(int64_t)>& task) {
  for (int64_t i = 0; i < n; ++i) {
    task(i);
  }
}

// See Note [Replicas Edited In Place]: gives `tensor` the storage, sizes and strides of `source`.
void alias(const at::Tensor& tensor, const at::Tensor& source) {
  tensor.unsafeGetTensorImpl()->shallow_copy_from(source.getIntrusivePtr());
}

// A handle of the same storage that can be written without raising the tensor's version.
at::Tensor unversioned(const at::Tensor& tensor) { return tensor.variable_data(); }

// An accumulator that something else keeps alive remembers the shape the tensor had; what it is
// given would be summed to that shape without a word.
void drop_outgrown_accumulator(const at::Tensor& tensor) {
  auto* const meta = variable::get_autograd_meta(tensor);
  const auto accumulator = meta->grad_accumulator_.lock();
  if (accumulator != nullptr && !accumulator->input_metadata(0).is_same_shape(tensor)) {
    meta->grad_accumulator_.reset();
  }
}

// Not requires_grad(), which asks a view's base as well.
bool has_gradient(const at::Tensor& tensor) {
  const auto* meta = variable::get_autograd_meta(tensor);
  return meta != nullptr && meta->requires_grad();
}

// Takes a replica's tensor out of every graph.
void cut(const at::Tensor& handle) {
  variable::set_gradient_edge(handle, Edge());
  handle.set_requires_grad(false);
}

// Whether a copy of `original` can lie where `tensor` does: in memory of the same layout, on its
// device, that nothing else uses.
bool has_room_for(const at::Tensor& tensor, const at::Tensor& original, c10::Device device) {
  return tensor.device() == device && original.layout() == c10::kStrided &&
         tensor.layout() == c10::kStrided && tensor.dtype() == original.dtype() &&
         tensor.sizes() == original.sizes() && tensor.strides() == original.strides() &&
         tensor.is_non_overlapping_and_dense() && !tensor.is_conj() && !tensor.is_neg() &&
         !tensor.is_inference() && tensor.storage().nbytes() == tensor.nbytes() &&
         tensor.storage().use_count() == 1;
}

uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<uint32_t>(tensor._version());
}

}  // namespace

ReplicaState::ReplicaState(std::shared_ptr<torch::nn::Module> module,
                           std::vector<c10::Device> devices, ReplicateOptions options,
                           std::unique_ptr<GradientRouter> router)
    : module_(std::move(module)),
      devices_(std::move(devices)),
      options_(std::move(options)),
      router_(std::move(router)) {
  TORCH_CHECK(module_ != nullptr, "[replicate] expected a module, got null");
  TORCH_INTERNAL_ASSERT(!devices_.empty());
  synchronize();
}

void ReplicaState::synchronize() {
  // Storage made in inference mode would be of no use to a later forward that records.
  const c10::InferenceMode normal_mode(false);
  const at::NoGradGuard no_grad;
  // Without snapshots the last synchronisation ended in an error half-way.
  if (num_builds_ == 0 || snapshots_.size() != slots_.size() || !structure_.matches(*module_)) {
    build();
  }
  bool rerouted = router_->stale();
  const std::set<size_t> strays = find_strays(rerouted);
  std::vector<TensorSnapshot> snapshots;
  if (!strays.empty()) {
    // An error from here on, such as memory that runs out, leaves some replicas changed and some
    // not. Without snapshots the next synchronisation makes them anew.
    snapshots.swap(snapshots_);
    for (const size_t s : strays) {
      adopt_layout(slots_[s]);
      rerouted = rerouted || has_gradient(slots_[s].original);
      snapshots[s] = TensorSnapshot(slots_[s].original, Edge());
    }
    plan_transfers();
  }
  copy_values();
  follow_modes();
  if (rerouted) {
    route_gradients();
  } else if (!strays.empty()) {
    snapshots_.swap(snapshots);
    remember_buffers();
  }
}

// The slots whose original or copies have other memory or another layout than they had. One pass,
// since every tensor costs cache misses, and all of it before the first change: a caller who puts
// things right after the error may go on.
std::set<size_t> ReplicaState::find_strays(bool& rerouted) {
  std::set<size_t> strays;
  for (size_t s = 0; s < slots_.size(); ++s) {
    if (s + kAhead < slots_.size()) {
      snapshots_[s + kAhead].prefetch();
    }
    if (!snapshots_[s].same_layout()) {
      check_placement(slots_[s].is_parameter ? "parameter" : "buffer", slots_[s].name,
                      slots_[s].original, devices_[0]);
      strays.insert(s);
    }
    rerouted = rerouted || !snapshots_[s].same_edge();
  }
  restore_extra_tensors();
  for (const BufferHandle& buffer : buffers_) {
    if (!buffer.snapshot.same_layout()) {
      strays.insert(buffer.slot);
    }
    if (!buffer.snapshot.same_edge()) {
      // A history that a forward gave its replica's buffer is not the original's.
      cut(buffer.tensor);
      rerouted = rerouted || has_gradient(slots_[buffer.slot].original);
    }
  }
  return strays;
}

// A forward may have put another tensor into the member, which then no longer is the one followed.
void ReplicaState::restore_extra_tensors() {
  for (const ExtraTensors& extras : extras_) {
    size_t next = 0;
    extras.twin->visit_extra_tensors([&](const std::string& name, at::Tensor& tensor) {
      TORCH_CHECK(next < extras.tensors.size(),
                  "[replicate] visit_extra_tensors of a replica names '", name,
                  "' as one more tensor than it did before: it must always name the same");
      const at::Tensor& own = extras.tensors[next++];
      if (!tensor.is_same(own)) {
        tensor = own;
      }
    });
  }
}

void ReplicaState::remember_buffers() {
  buffers_.clear();
  for (size_t s = 0; s < slots_.size(); ++s) {
    const Slot& slot = slots_[s];
    for (size_t r = 0; r < devices_.size() && !slot.is_parameter; ++r) {
      for (const at::Tensor& handle : slot.handles[r]) {
        const Edge edge = handle.requires_grad() ? variable::gradient_edge(handle) : Edge();
        buffers_.push_back({s, handle, TensorSnapshot(handle, edge)});
      }
    }
  }
}

void ReplicaState::build() {
  // Before any copy is made: a clone of a module on another device would be wasted work there.
  check_module_is_on(*module_, devices_[0]);
  // On the caller's thread, whose handler gets it.
  warn_if_nothing_is_registered(*module_, options_);
  const auto num_replicas = static_cast<int64_t>(devices_.size());
  std::vector<std::shared_ptr<torch::nn::Module>> replicas(devices_.size());
  std::vector<Pairs> pairs(devices_.size());
  {
    const auto streams = comm::current_streams(devices_);
    (options_.executor ? options_.executor : Executor(run_serially))(num_replicas, [&](int64_t r) {
      const c10::InferenceMode normal_mode(false);
      const at::NoGradGuard no_grad;
      const c10::MultiStreamGuard same_streams(streams);
      replicas[r] = make_twin(module_, devices_[r], options_);
      pairs[r] = pair_with_twin(module_, replicas[r], devices_[r], options_);
    });
  }
  replicas_ = std::move(replicas);
  slots_.clear();
  snapshots_.clear();
  buffers_.clear();
  extras_.clear();
  transfers_.clear();
  modules_.assign(devices_.size(), {});
  for (size_t r = 0; r < devices_.size(); ++r) {
    std::unordered_map<const c10::TensorImpl*, size_t> slot_of;
    for (size_t s = 0; s < slots_.size(); ++s) {
      slot_of.emplace(slots_[s].original.unsafeGetTensorImpl(), s);
    }
    for (const TensorPair& pair : pairs[r].tensors) {
      const auto [entry, is_new] =
          slot_of.emplace(pair.original.unsafeGetTensorImpl(), slots_.size());
      if (is_new) {
        slots_.emplace_back();
        slots_.back().name = pair.name;
        slots_.back().original = pair.original;
        slots_.back().handles.resize(devices_.size());
        slots_.back().copy_versions.resize(devices_.size());
      }
      Slot& slot = slots_[entry->second];
      slot.is_parameter = slot.is_parameter || pair.is_parameter;
      slot.written_in_forward = slot.written_in_forward || pair.written_in_forward;
      slot.handles[r].push_back(pair.twin);
    }
    modules_[r] = std::move(pairs[r].modules);
    for (ExtraTensors& extras : pairs[r].extras) {
      extras_.push_back(std::move(extras));
    }
  }
  for (Slot& slot : slots_) {
    adopt_layout(slot);
    slot.seen_version = version_of(slot.original);
  }
  structure_ = Structure(*module_);
  ++num_builds_;
  plan_transfers();
  route_gradients();
}

bool ReplicaState::shares_storage(const Slot& slot, size_t replica) const {
  return replica == 0 || (slot.is_parameter && !slot.written_in_forward &&
                          options_.share_parameters && devices_[replica] == devices_[0]);
}

void ReplicaState::adopt_layout(Slot& slot) {
  for (size_t r = 0; r < devices_.size(); ++r) {
    const bool shares = shares_storage(slot, r);
    const bool stays = !shares && has_room_for(slot.handles[r].front(), slot.original, devices_[r]);
    const at::Tensor source =
        shares  ? slot.original
        : stays ? slot.handles[r].front().detach()
                : slot.original.detach().to(devices_[r], /*non_blocking=*/false, /*copy=*/true);
    // A copy's count goes on, so that a graph made before it sees the change.
    auto version = variable::version_counter(shares ? slot.original : slot.handles[r].front());
    if (!shares && version.enabled()) {
      version.bump();
    }
    for (const at::Tensor& handle : slot.handles[r]) {
      alias(handle, source);
      variable::set_version_counter(handle, version);
    }
    slot.copy_versions[r] = version_of(slot.handles[r].front());
  }
}

void ReplicaState::plan_transfers() {
  transfers_.clear();
  owned_somewhere_.clear();
  for (size_t s = 0; s < slots_.size(); ++s) {
    for (size_t r = 1; r < devices_.size(); ++r) {
      if (!shares_storage(slots_[s], r)) {
        owned_somewhere_.push_back(s);
        break;
      }
    }
  }
  // Replicas that own the same tensors are served together: all, or the buffers only.
  for (size_t r = 1; r < devices_.size(); ++r) {
    Transfer transfer;
    std::vector<at::Tensor> copies;
    for (const Slot& slot : slots_) {
      if (!shares_storage(slot, r) && slot.original.layout() == c10::kStrided) {
        transfer.sources.push_back(unversioned(slot.original));
        copies.push_back(unversioned(slot.handles[r].front()));
      }
    }
    if (!transfers_.empty() && transfers_.back().sources.size() == copies.size()) {
      transfers_.back().copies.push_back(std::move(copies));
      transfers_.back().replicas.push_back(r);
      continue;
    }
    transfer.copies.push_back(std::move(copies));
    transfer.replicas.push_back(r);
    transfers_.push_back(std::move(transfer));
  }
}

void ReplicaState::copy_values() {
  comm::CoalesceOptions options;
  options.buffer_bytes = options_.buffer_bytes;
  options.collectives = options_.collectives;
  for (const Transfer& transfer : transfers_) {
    if (!transfer.sources.empty()) {
      comm::broadcast_coalesced_out(transfer.sources, transfer.copies, options);
    }
  }
  // The copies above leave versions alone, so that two forwards of an unchanged module may come
  // before a backward. After a change, be it of the original or by the replica itself, a graph made
  // before the copy must not be used any more.
  for (const size_t s : owned_somewhere_) {
    Slot& slot = slots_[s];
    const uint32_t version = version_of(slot.original);
    const bool changed = version != slot.seen_version;
    slot.seen_version = version;
    for (size_t r = 1; r < devices_.size(); ++r) {
      if (shares_storage(slot, r)) {
        continue;
      }
      const at::Tensor& copy = slot.handles[r].front();
      if (changed || version_of(copy) != slot.copy_versions[r]) {
        copy.unsafeGetTensorImpl()->bump_version();
        slot.copy_versions[r] = version_of(copy);
      }
    }
  }
}

void ReplicaState::follow_modes() {
  for (const auto& modules : modules_) {
    // Parents come first, so a child that differs from its parent is put right after it.
    for (const ModulePair& pair : modules) {
      if (pair.twin->is_training() != pair.original->is_training()) {
        pair.twin->train(pair.original->is_training());
      }
    }
  }
}

void ReplicaState::route_gradients() {
  // Let go of all edges first, so that accumulators nobody else needs end here.
  router_->clear();
  snapshots_.clear();
  buffers_.clear();
  for (Slot& slot : slots_) {
    for (const auto& handles : slot.handles) {
      for (const at::Tensor& handle : handles) {
        cut(handle);
      }
    }
  }
  std::vector<TensorSnapshot> snapshots;
  snapshots.reserve(slots_.size());
  std::vector<RoutedTensor> routed;
  std::vector<const Slot*> trainable;
  for (const Slot& slot : slots_) {
    if (!has_gradient(slot.original)) {
      snapshots.emplace_back(slot.original, Edge());
      continue;
    }
    drop_outgrown_accumulator(slot.original);
    RoutedTensor tensor{slot.original, variable::gradient_edge(slot.original), {}};
    snapshots.emplace_back(slot.original, tensor.edge);
    for (const auto& handles : slot.handles) {
      tensor.replicas.push_back(handles.front());
    }
    routed.push_back(std::move(tensor));
    trainable.push_back(&slot);
  }
  const auto edges = router_->route(routed);
  TORCH_INTERNAL_ASSERT(edges.size() == devices_.size());
  for (size_t r = 0; r < devices_.size(); ++r) {
    for (size_t i = 0; i < trainable.size(); ++i) {
      for (const at::Tensor& handle : trainable[i]->handles[r]) {
        variable::set_gradient_edge(handle, edges[r][i]);
      }
    }
  }
  remember_buffers();
  snapshots_ = std::move(snapshots);
}

std::unique_ptr<ReplicaState> make_replica_state(std::shared_ptr<torch::nn::Module> module,
                                                 c10::ArrayRef<c10::Device> devices,
                                                 const ReplicateOptions& options) {
  auto normalized = comm::normalize_devices("replicate", devices);
  comm::CoalesceOptions coalesce;
  coalesce.buffer_bytes = options.buffer_bytes;
  coalesce.collectives = options.collectives;
  auto router = std::make_unique<SumRouter>(normalized, coalesce);
  return std::make_unique<ReplicaState>(std::move(module), std::move(normalized), options,
                                        std::move(router));
}

}  // namespace lockstep::replicate::internal
