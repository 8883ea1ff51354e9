// SPDX-License-Identifier: Apache-2.0
// data_parallel.h: trains a module on several devices of one process.
//
//   lockstep::parallel::DataParallel parallel(net, {torch::kCPU, torch::kCPU});
//   torch::optim::SGD optimizer(parallel.parameters(), 0.1);
//   for (auto& batch : loader) {
//     optimizer.zero_grad();
//     auto loss = torch::mse_loss(parallel.forward(batch.data), batch.target);
//     loss.backward();      // the gradients are in net's own parameters
//     optimizer.step();
//   }
//
// DataParallel keeps its replicas and threads between steps; use it in loops. data_parallel() is a
// drop-in for torch::nn::parallel::data_parallel, and makes replicas anew at every call.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "parallel/data_parallel_core.h"
#include "parallel/data_parallel_options.h"
#include "parallel/failure.h"
#include "replicate/module_tensors.h"
#include "replicate/replicate.h"

namespace lockstep::parallel {
namespace internal {

template <class M, size_t... Index>
at::Tensor call_forward(M& module, [[maybe_unused]] c10::ArrayRef<at::Tensor> inputs,
                        std::index_sequence<Index...>) {
  using Output = decltype(module.forward(inputs[Index]...));
  static_assert(std::is_convertible_v<Output, at::Tensor>,
                "data_parallel needs a forward that returns one tensor; for several, join them "
                "along another dimension than the one that is split, and take them apart after");
  return module.forward(inputs[Index]...);
}

// The forward of M with `num_inputs` tensors, for a module whose static type was lost.
template <class M, size_t num_inputs>
at::Tensor forward_as(torch::nn::Module& module, c10::ArrayRef<at::Tensor> inputs) {
  return call_forward(dynamic_cast<M&>(module), inputs, std::make_index_sequence<num_inputs>());
}

at::Tensor data_parallel_once(const std::shared_ptr<torch::nn::Module>& module,
                              const at::Tensor& input,
                              const std::optional<std::vector<c10::Device>>& devices,
                              std::optional<c10::Device> output_device, int64_t dim,
                              const ForwardFunction& function);

template <class M>
const std::shared_ptr<M>& module_pointer(const std::shared_ptr<M>& module) {
  return module;
}
template <class M>
const std::shared_ptr<M>& module_pointer(const torch::nn::ModuleHolder<M>& module) {
  return module.ptr();
}

}  // namespace internal

// A module together with replicas of it, one per device, that share the work of each forward and
// backward. The module stays what it was: the same object with the same parameters, in which
// gradients, BatchNorm statistics and buffer updates of the first chunk arrive. It may be used,
// trained, saved and loaded directly at any time; each forward first brings the replicas' tensors,
// train or eval mode and requires_grad in line. Members that are no tensors (a temperature, a
// dropout rate) are copied when the replicas are made and not again: keep what changes in a buffer,
// or set it in each of replicas() too. A forward must write to a buffer in place: one that it gives
// other memory (set_data, assignment, resize_) or a history gets back the module's at the next
// forward, and the module never sees it.
//
// Threads: forwards of one object from several threads take turns; their backwards run together.
template <class M>
class DataParallel {
 public:
  // Makes the replicas; replicate() says what they are. `module` may be a shared_ptr or a holder.
  // Devices: of one type, the module on the first; {cpu, cpu} means two logical replicas.
  // Throws:  c10::Error if the list is empty or of mixed types, if a parameter or buffer is
  //          elsewhere than on devices[0] (both are named), or if the module cannot be copied.
  DataParallel(std::shared_ptr<M> module, std::vector<c10::Device> devices,
               DataParallelOptions options = {})
      : module_(std::move(module)),
        core_(std::make_shared<internal::DataParallelCore>("DataParallel", module_, devices,
                                                           std::move(options), nullptr)) {}

  DataParallel(const torch::nn::ModuleHolder<M>& module, std::vector<c10::Device> devices,
               DataParallelOptions options = {})
      : DataParallel(module.ptr(), std::move(devices), std::move(options)) {}

  // Returns what the module would return for the whole inputs, as far as rows do not depend on each
  // other: splits every input along options.dim into min(N, devices) chunks whose sizes differ by
  // at most one, larger first, runs chunk i on replica i, all at the same time, and joins the
  // outputs in order. A single chunk, an empty batch and a call without inputs run on the module
  // itself, on devices[0]. With several devices a chunk has memory of its own: forward may write to
  // it, and the caller's batch stays as it is. Layers that look at their batch (BatchNorm in
  // training) see their chunk.
  // Shapes:  inputs[j] [..., N, ...] -> [..., N', ...]; scalar outputs give a vector with one entry
  //          per replica, and a warning.
  // Devices: inputs anywhere; the output on options.output_device, else devices[0].
  // Grad:    a plain backward() on what is made of the output adds to the module's own parameters
  //          what one device would: the sum over replicas in order. Twice differentiable.
  // Throws:  c10::Error if inputs cannot be split or outputs not joined (input or replica, shapes
  //          and dim are named). What replicas throw is thrown here once all have ended, see
  //          last_failure(); the next call works.
  template <class... Tensors>
  at::Tensor forward(const Tensors&... inputs) {
    static_assert((std::is_convertible_v<const Tensors&, const at::Tensor&> && ...),
                  "DataParallel::forward takes tensors; every one is split along options.dim");
    const std::vector<at::Tensor> list{inputs...};
    return core_->forward(list, internal::forward_as<M, sizeof...(Tensors)>);
  }

  template <class... Tensors>
  at::Tensor operator()(const Tensors&... inputs) {
    return forward(inputs...);
  }

  // The module that was given: the same object.
  const std::shared_ptr<M>& module() const { return module_; }
  M* operator->() const { return module_.get(); }

  // The module's parameters, each once: what an optimizer should get.
  std::vector<at::Tensor> parameters() const { return replicate::unique_parameters(*module_); }

  // The replicas as of the last forward, by position in devices().
  std::vector<std::shared_ptr<M>> replicas() const {
    return replicate::internal::cast_replicas<M>(core_->replicas());
  }

  const std::vector<c10::Device>& devices() const { return core_->devices(); }

 private:
  std::shared_ptr<M> module_;
  std::shared_ptr<internal::DataParallelCore> core_;
};

// Returns module->forward(input), computed on all `devices` at once as DataParallel::forward does.
// Replicas are made for this call, no more than there are chunks, and live until the graph is gone.
// Same signature as torch::nn::parallel::data_parallel; what differs: the module is not moved, its
// BatchNorm statistics move, frozen parameters stay frozen, batches may be smaller than the list,
// gradients may be differentiated again, and random state is left alone.
// Devices: absent: every CUDA device. The module on the first.
// Throws:  as DataParallel, and c10::Error if no device was given or found.
// Threads: may be called from several threads.
template <class ModuleType>
at::Tensor data_parallel(ModuleType module, at::Tensor input,
                         std::optional<std::vector<c10::Device>> devices = std::nullopt,
                         std::optional<c10::Device> output_device = std::nullopt, int64_t dim = 0) {
  const auto& pointer = internal::module_pointer(module);
  using M = std::decay_t<decltype(*pointer)>;
  return internal::data_parallel_once(pointer, input, devices, output_device, dim,
                                      internal::forward_as<M, 1>);
}

}  // namespace lockstep::parallel
