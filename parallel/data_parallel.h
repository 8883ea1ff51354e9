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
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "parallel/arguments.h"
#include "parallel/data_parallel_core.h"
#include "parallel/data_parallel_options.h"
#include "parallel/failure.h"
#include "parallel/typed_call.h"
#include "replicate/module_tensors.h"
#include "replicate/replicate.h"

namespace lockstep::parallel {
namespace internal {

// Calls the forward of a module.
struct Forward {
  template <class M, class... Arguments>
  auto operator()(M& module, const Arguments&... arguments) const
      -> decltype(module.forward(arguments...)) {
    return module.forward(arguments...);
  }
};

template <class M, class... Arguments>
constexpr void check_forward() {
  static_assert(std::is_invocable_v<Forward, M&, const Unwrap<Arguments>&...>,
                "the module's forward() cannot be called with these arguments, each const");
  static_assert(!std::is_void_v<std::invoke_result_t<Forward, M&, const Unwrap<Arguments>&...>>,
                "the module's forward() returns nothing: return what the replicas computed");
}

// The devices of a call of the function: those given, or every CUDA device.
std::vector<c10::Device> devices_for_call(const std::optional<std::vector<c10::Device>>& devices);

// Runs one call on replicas that are made for it.
std::vector<at::Tensor> run_once(const std::shared_ptr<torch::nn::Module>& module,
                                 c10::ArrayRef<c10::Device> devices, DataParallelOptions options,
                                 const ReplicaCall& call);

template <class M, class... Arguments>
auto forward_once(const std::shared_ptr<M>& module,
                  const std::optional<std::vector<c10::Device>>& devices,
                  const DataParallelOptions& options, const Arguments&... arguments) {
  check_forward<M, Arguments...>();
  const std::vector<c10::Device> all = devices_for_call(devices);
  const auto run = [&](const ReplicaCall& call) { return run_once(module, all, options, call); };
  return run_call<M>("data_parallel", all.size(), run, Forward(), arguments...);
}

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
        core_(std::make_shared<internal::DataParallelCore>(
            "DataParallel", module_, devices, std::move(options), nullptr, devices.size())) {}

  DataParallel(const torch::nn::ModuleHolder<M>& module, std::vector<c10::Device> devices,
               DataParallelOptions options = {})
      : DataParallel(module.ptr(), std::move(devices), std::move(options)) {}

  // Returns what the module would return for the whole inputs, as far as rows do not depend on each
  // other: splits every tensor among the arguments along options.dim into min(N, devices) chunks
  // whose sizes differ by at most one, larger first, runs chunk i on replica i, all at the same
  // time, and joins the tensors in the results in order. A single chunk, an empty batch and a call
  // with nothing to split run on the module itself, on devices[0]. With several devices a chunk has
  // memory of its own: forward may write to it, and the caller's batch stays as it is (not under
  // DevicePolicy::kOneDevice, which passes it on). Layers that
  // look at their batch (BatchNorm in training) see their chunk.
  //
  // Arguments and result may be of any types. Tensors are found in pairs, tuples, optionals,
  // variants, vectors, arrays, maps, torch::OrderedDict and structs with TensorMembers, in any
  // nesting; undefined ones stay so. Everything else is copied to every replica, and must be the
  // same in all results where it can be compared. split_along() and to_all_replicas() (arguments.h)
  // say otherwise for an argument.
  // Shapes:  split tensors [..., N, ...], the same N in all -> [..., N', ...]; scalar outputs give
  //          a vector with one entry per replica, and a warning.
  // Devices: arguments anywhere; outputs on options.output_device, else devices[0].
  // Grad:    a plain backward() on what is made of the outputs adds to the module's own parameters
  //          what one device would: the sum over replicas in order. Twice differentiable.
  // Throws:  c10::Error if arguments cannot be split or results not joined (argument or replica,
  //          shapes and dim are named). What replicas throw is thrown here once all have ended, see
  //          last_failure(); the next call works.
  template <class... Arguments>
  auto forward(const Arguments&... arguments) {
    internal::check_forward<M, Arguments...>();
    return run([this](const internal::ReplicaCall& call) { return core_->run(call); },
               internal::Forward(), arguments...);
  }

  template <class... Arguments>
  auto operator()(const Arguments&... arguments) {
    return forward(arguments...);
  }

  // Runs loss_fn(module, batch...) on every replica with its chunk of the batch, and the backward
  // of what they return: forward, loss and backward on all devices at once, with less hand-over
  // between threads than forward() and backward(). `loss_fn` returns one tensor without dimensions,
  // and is called on several threads at once.
  //
  //   parallel.train_step([](Net& net, const at::Tensor& x, const at::Tensor& y) {
  //     return torch::mse_loss(net.forward(x), y);
  //   }, x, y);
  //
  // kMean weights each loss by the rows of its chunk, as the mean over the whole batch does. Neither
  // zeroes gradients nor runs an optimizer.
  // Returns: the total loss, detached, on options.output_device, else devices[0].
  // Grad:    added to the module's parameters and whatever else requires grad, as by backward().
  //          Pass what was computed outside as an argument: CPU replicas cannot share its graph.
  // Threads: steps and forwards take turns, until the replicas are done.
  // Throws:  as forward(), and c10::Error if a loss has dimensions or none requires grad. If a replica
  //          throws, the module's parameters get nothing, but tensors from outside that loss_fn uses
  //          may have got other replicas' gradients.
  template <class LossFunction, class... Arguments>
  at::Tensor train_step(const LossFunction& loss_fn, const Arguments&... batch) {
    return train_step(LossReduction::kMean, loss_fn, batch...);
  }
  template <class LossFunction, class... Arguments>
  at::Tensor train_step(LossReduction reduction, const LossFunction& loss_fn,
                        const Arguments&... batch) {
    static_assert(
        std::is_invocable_r_v<at::Tensor, const LossFunction&, M&,
                              const internal::Unwrap<Arguments>&...>,
        "train_step needs a function that can be called as loss_fn(module, batch...), where module "
        "is a reference and each of the batch const, and that returns a tensor");
    return run(
        [this, reduction](const internal::ReplicaCall& call) {
          return std::vector<at::Tensor>{core_->train_step(call, reduction)};
        },
        [&](M& module, const auto&... chunks) -> at::Tensor {
          const at::Tensor loss = loss_fn(module, chunks...);
          TORCH_CHECK(
              loss.defined() && loss.dim() == 0,
              "[DataParallel] train_step: expected a loss without dimensions, got ",
              loss.defined() ? "one with them: take its mean() or sum()" : "an undefined tensor");
          return loss;
        },
        batch...);
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

  // What DevicePolicy::kAutomatic has decided; the policy's own otherwise.
  DeviceChoice device_choice() const { return core_->decision().choice(); }

  // Ends the measurement of kAutomatic, before the first forward for a run that repeats; kUndecided
  // measures anew.
  // Throws: c10::Error under another policy.
  void set_device_choice(DeviceChoice choice) { core_->decision().set(choice); }

 private:
  template <class RunCore, class Function, class... Arguments>
  auto run(const RunCore& run_core, const Function& function, const Arguments&... arguments) {
    return internal::run_call<M>(core_->name(), core_->devices().size(), run_core, function,
                                 arguments...);
  }

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
auto data_parallel(ModuleType module, at::Tensor input,
                   std::optional<std::vector<c10::Device>> devices = std::nullopt,
                   std::optional<c10::Device> output_device = std::nullopt, int64_t dim = 0) {
  TORCH_CHECK(input.defined(), "[data_parallel] input 0 is undefined");
  DataParallelOptions options;
  options.output_device = output_device;
  options.dim = dim;
  return internal::forward_once(internal::module_pointer(module), devices, options, input);
}

// The same for a forward of any arguments, given as a tuple.
//   auto [output, state] = data_parallel(net, std::tuple(x, split_along(state, 1)), devices);
template <class ModuleType, class... Arguments>
auto data_parallel(ModuleType module, const std::tuple<Arguments...>& arguments,
                   std::optional<std::vector<c10::Device>> devices = std::nullopt,
                   const DataParallelOptions& options = {}) {
  return std::apply(
      [&](const auto&... each) {
        return internal::forward_once(internal::module_pointer(module), devices, options, each...);
      },
      arguments);
}

}  // namespace lockstep::parallel
