// SPDX-License-Identifier: Apache-2.0
// data_parallel_core.h: DataParallel without the module's static type. Internal to parallel.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "parallel/data_parallel_options.h"
#include "parallel/gradient_sum.h"
#include "parallel/relay.h"
#include "parallel/worker_pool.h"
#include "replicate/replica_state.h"

namespace lockstep::parallel::internal {

// Calls the forward of the module's static type with the given arguments.
using ForwardFunction =
    std::function<at::Tensor(torch::nn::Module& module, c10::ArrayRef<at::Tensor> inputs)>;

class DataParallelCore : public std::enable_shared_from_this<DataParallelCore> {
 public:
  // Runs on `pool`, or on a pool of its own if that is null. `name` begins its error messages.
  DataParallelCore(const char* name, std::shared_ptr<torch::nn::Module> module,
                   c10::ArrayRef<c10::Device> devices, DataParallelOptions options,
                   WorkerPool* pool);
  ~DataParallelCore();

  at::Tensor forward(c10::ArrayRef<at::Tensor> inputs, const ForwardFunction& function);

  std::vector<std::shared_ptr<torch::nn::Module>> replicas();
  const std::vector<c10::Device>& devices() const { return devices_; }

 private:
  using Chunks = std::vector<std::vector<at::Tensor>>;  // by replica, then input

  at::Tensor run_alone(c10::ArrayRef<at::Tensor> inputs, const ForwardFunction& function);
  at::Tensor run_whole_graph(c10::ArrayRef<at::Tensor> inputs, const std::vector<int64_t>& sizes,
                             const ForwardFunction& function);
  at::Tensor run_per_replica(c10::ArrayRef<at::Tensor> inputs, const std::vector<int64_t>& sizes,
                             const ForwardFunction& function);
  // Each worker first copies its row of `sources`, if there are any, into its chunks.
  std::vector<at::Tensor> run_replicas(const Chunks& chunks, const ForwardFunction& function,
                                       const Chunks& sources);
  at::Tensor to_output_device(at::Tensor output) const;

  const char* const name_;
  const std::shared_ptr<torch::nn::Module> module_;
  const std::vector<c10::Device> devices_;
  const DataParallelOptions options_;
  const std::unique_ptr<WorkerPool> own_pool_;
  WorkerPool* const pool_;
  RelayRouter* relays_ = nullptr;  // the state's, if the replicas run their own backward
  std::unique_ptr<replicate::internal::ReplicaState> state_;  // null for a single device
  std::weak_ptr<RelaySet> planned_;                           // what plan_ is for
  std::shared_ptr<const SumPlan> plan_;
  std::mutex mutex_;  // one forward at a time: they share the replicas' buffers
};

// Splits the batch: rows per chunk, even_sizes() of the inputs' common size along dim.
// Throws: c10::Error naming the input if it cannot be split along dim, or not like the first.
std::vector<int64_t> batch_sizes(const char* name, c10::ArrayRef<at::Tensor> inputs, int64_t dim,
                                 size_t num_devices);

// Normalises and checks the devices of a call: some, of one type.
std::vector<c10::Device> parallel_devices(const char* name, c10::ArrayRef<c10::Device> devices);

}  // namespace lockstep::parallel::internal
