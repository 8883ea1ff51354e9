// SPDX-License-Identifier: Apache-2.0
// data_parallel_core.h: DataParallel without the module's static type. Internal to parallel.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>
#include <torch/nn/module.h>

#include <memory>
#include <mutex>
#include <vector>

#include "parallel/data_parallel_options.h"
#include "parallel/device_decision.h"
#include "parallel/gradient_sum.h"
#include "parallel/join_outputs.h"
#include "parallel/relay.h"
#include "parallel/replica_backward.h"
#include "parallel/replica_call.h"
#include "parallel/scatter_arguments.h"
#include "parallel/worker_pool.h"
#include "replicate/replica_generators.h"
#include "replicate/replica_state.h"

namespace lockstep::parallel::internal {

class DataParallelCore : public std::enable_shared_from_this<DataParallelCore> {
 public:
  // Runs on `pool`, or on a pool of its own if that is null. `name` begins its error messages.
  // Makes replicas for the first `num_replicas` devices: for a call with no more chunks than that.
  DataParallelCore(const char* name, std::shared_ptr<torch::nn::Module> module,
                   c10::ArrayRef<c10::Device> devices, DataParallelOptions options,
                   WorkerPool* pool, size_t num_replicas);
  ~DataParallelCore();

  // Runs `call` on as many replicas as there are chunks and returns the joined tensors of the
  // results, in order.
  std::vector<at::Tensor> run(const ReplicaCall& call);

  // The same for a call that returns a loss, and then its backward. Returns the total, detached.
  at::Tensor train_step(const ReplicaCall& call, LossReduction reduction);

  DeviceDecision& decision() { return decision_; }

  const char* name() const { return name_; }
  std::vector<std::shared_ptr<torch::nn::Module>> replicas();
  const std::vector<c10::Device>& devices() const { return devices_; }

 private:
  using Tensors = std::vector<at::Tensor>;

  struct Joined {
    Tensors tensors;
    bool has_scalars = false;   // of one chunk each, among what the replicas returned
    bool made_vectors = false;  // of scalars, without saying so
  };

  void check_not_inside() const;
  // Rows per chunk: a single one where one device is to be used.
  std::vector<int64_t> sizes_for(const ReplicaCall& call);
  // output_dims: as in the options, for the tensors of this call's result.
  Joined run_chunks(const ReplicaCall& call, const std::vector<int64_t>& sizes,
                    c10::ArrayRef<int64_t> output_dims);
  Joined run_alone(const ReplicaCall& call, c10::ArrayRef<int64_t> output_dims);
  Joined run_whole_graph(const ReplicaCall& call, const std::vector<int64_t>& sizes,
                         c10::ArrayRef<int64_t> output_dims);
  Joined run_per_replica(const ReplicaCall& call, const std::vector<int64_t>& sizes,
                         c10::ArrayRef<int64_t> output_dims);
  // A node for the replicas' own backward, the chunks in its forward still to be copied.
  struct Prepared {
    std::shared_ptr<ReplicaBackward> node;
    ReplicaForward forward;
    Chunks sources;
  };
  Prepared prepare_per_replica(const ReplicaCall& call, const std::vector<int64_t>& sizes);
  // What the worker of replica `r` does: copies its row of `sources`, if there are any, into its
  // chunks, and runs its part of the call.
  Tensors run_replica(const ReplicaCall& call, size_t r, const Tensors& chunks,
                      const Tensors& sources);
  std::vector<OutputParts> run_replicas(const ReplicaCall& call, const Chunks& chunks,
                                        const Chunks& sources, c10::ArrayRef<int64_t> output_dims);
  RunOptions run_options() const;
  std::shared_ptr<const SumPlan> plan_for(const std::shared_ptr<RelaySet>& relays);
  Tensors to_output_device(Tensors outputs) const;

  const char* const name_;
  const std::shared_ptr<torch::nn::Module> module_;
  const std::vector<c10::Device> devices_;
  const DataParallelOptions options_;
  const size_t num_replicas_;
  const std::unique_ptr<WorkerPool> own_pool_;
  WorkerPool* const pool_;
  RelayRouter* relays_ = nullptr;  // the state's, if the replicas run their own backward
  std::unique_ptr<replicate::internal::ReplicaState> state_;  // null for a single replica
  std::weak_ptr<RelaySet> planned_;                           // what plan_ is for
  std::shared_ptr<const SumPlan> plan_;
  replicate::internal::ReplicaGenerators generators_;
  DeviceDecision decision_;
  std::mutex mutex_;  // one forward at a time: they share the replicas' buffers
};

// Normalises and checks the devices of a call: some, of one type.
std::vector<c10::Device> parallel_devices(const char* name, c10::ArrayRef<c10::Device> devices);

}  // namespace lockstep::parallel::internal
