// SPDX-License-Identifier: Apache-2.0
// replica_call.h: one call of a module's forward without its types, as DataParallelCore runs it.
// Internal to parallel; typed_call.h makes it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parallel/arguments.h"

namespace lockstep::parallel::internal {

struct ReplicaCall {
  // All tensors of the arguments, in order, and where each goes. Undefined ones stay so everywhere.
  std::vector<at::Tensor> tensors;
  std::vector<Placement> placements;

  // By argument: the index of its first tensor, and whether it is a tensor and nothing else.
  std::vector<size_t> first_tensor;
  std::vector<bool> is_tensor;

  // Calls `module` as replica `replica` with `tensors` for those of the arguments, keeps the result
  // and returns the tensors in it. Called from several threads at once, for different replicas.
  std::function<std::vector<at::Tensor>(size_t replica, torch::nn::Module& module,
                                        c10::ArrayRef<at::Tensor> tensors)>
      run;

  // How each tensor of the results is joined. Called once the first `num_replicas` replicas have
  // returned; throws if their results differ in structure.
  std::function<std::vector<Placement>(size_t num_replicas)> placements_of_result;

  // What messages call tensor `index` of the arguments: "input 2" or "tensor 0 of input 2".
  std::string name_of(size_t index) const;
};

// The tensors of `call` that are split, by index: those that are defined and not whole.
std::vector<size_t> split_tensors(const ReplicaCall& call);

// Rows per chunk: even_sizes() of the common size of all tensors that are split, each along its own
// dim or else along `dim`. One chunk of all if none is.
// Throws: c10::Error naming the tensor if it cannot be split, or not like the first.
std::vector<int64_t> batch_sizes(const char* name, const ReplicaCall& call, int64_t dim,
                                 size_t num_devices);

}  // namespace lockstep::parallel::internal
