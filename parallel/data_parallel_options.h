// SPDX-License-Identifier: Apache-2.0
// data_parallel_options.h: what DataParallel lets its user choose.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/device_policy.h"
#include "replicate/replicate_options.h"

namespace lockstep::parallel {

// How gradients get back from the replicas. The results are the same.
enum class BackwardEngine {
  // kPerReplica on the CPU, where the autograd engine would run the replicas one after another;
  // kWholeGraph elsewhere, where it has a thread for every device.
  kAutomatic,
  // Each worker runs the backward of its own replica. CPU replicas only. A graph that was recorded
  // by create_graph is joined to the user's and runs as in kWholeGraph from then on. Until then
  // the replicas' graphs cannot be walked from the output's grad_fn, and while one thread runs a
  // create_graph backward no other may run a backward of the same object.
  kPerReplica,
  // The replicas' graphs are part of the user's graph.
  kWholeGraph,
};

// How the losses of the replicas become the loss of the batch.
enum class LossReduction {
  kMean,  // each counts by the rows of its chunk: for losses that are means over rows
  kSum,   // added up: for losses that are sums over rows
};

struct DataParallelOptions {
  // Where the output goes; the first device if absent.
  std::optional<c10::Device> output_device;

  // The dimension along which inputs are split and outputs joined, unless said otherwise:
  // for an argument by split_along() (arguments.h), for outputs by output_dims.
  int64_t dim = 0;

  // For a forward that returns several tensors: the dimension along which each is joined, in the
  // order in which they stand in the result. The output and the state of an LSTM: {0, 1, 1}.
  std::vector<int64_t> output_dims;

  // Whether all devices are used, or one. For the class only: data_parallel() has no steps to measure.
  DevicePolicy policy = DevicePolicy::kReplicas;

  // Lets DevicePolicy::kAutomatic choose for a module with which a split batch gives other results,
  // as with BatchNorm in training or dropout.
  bool allow_automatic_to_change_results = false;

  BackwardEngine backward = BackwardEngine::kAutomatic;

  // Threads that operators may use inside each replica; see RunOptions::intra_op_threads.
  int64_t threads_per_replica = 0;

  // How replicas are made and kept in sync. Without an executor they are made by the workers.
  replicate::ReplicateOptions replicate;
};

}  // namespace lockstep::parallel
