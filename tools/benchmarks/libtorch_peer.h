// SPDX-License-Identifier: Apache-2.0
// libtorch_peer: LibTorch's own data_parallel and replicate on two CPU replicas.
//
// They are templates in a header that only the .cc includes: it is compiled with OpenMP, without
// which LibTorch's parallel_apply runs one replica after the other, and with a stand-in for the
// parts that exist for CUDA only (libtorch_shim). Defined for the modules of models.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace lockstep::benchmarks::libtorch_peer {

// torch::nn::parallel::data_parallel(module, input, {cpu, cpu}).
template <class M>
at::Tensor data_parallel(const std::shared_ptr<M>& module, const at::Tensor& input);

// torch::nn::parallel::replicate(module, {cpu, cpu}).
template <class M>
std::vector<std::shared_ptr<M>> replicate(const std::shared_ptr<M>& module);

// Flushes denormals on the threads of an OpenMP team of this size, which stay for later teams.
void flush_denormals_on_team(int num_threads);

}  // namespace lockstep::benchmarks::libtorch_peer
