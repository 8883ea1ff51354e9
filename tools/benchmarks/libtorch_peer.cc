// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/libtorch_peer.h"

#include <torch/nn/parallel/data_parallel.h>

#include "tools/benchmarks/models.h"
#include "tools/benchmarks/process_settings.h"

#ifndef _OPENMP
#error "LibTorch's parallel_apply runs in parallel only in code compiled with -fopenmp."
#endif

namespace lockstep::benchmarks::libtorch_peer {
namespace {

std::vector<at::Device> two_replicas() { return {at::kCPU, at::kCPU}; }

}  // namespace

template <class M>
at::Tensor data_parallel(const std::shared_ptr<M>& module, const at::Tensor& input) {
  return torch::nn::parallel::data_parallel(module, input, two_replicas());
}

template <class M>
std::vector<std::shared_ptr<M>> replicate(const std::shared_ptr<M>& module) {
  return torch::nn::parallel::replicate(module, two_replicas());
}

void flush_denormals_on_team(int num_threads) {
#pragma omp parallel num_threads(num_threads)
  flush_denormals_on_this_thread();
}

template at::Tensor data_parallel(const std::shared_ptr<Mlp>&, const at::Tensor&);
template at::Tensor data_parallel(const std::shared_ptr<ConvNet>&, const at::Tensor&);
template at::Tensor data_parallel(const std::shared_ptr<ResNet18>&, const at::Tensor&);
template at::Tensor data_parallel(const std::shared_ptr<LstmClassifier>&, const at::Tensor&);
template at::Tensor data_parallel(const std::shared_ptr<TransformerLayer>&, const at::Tensor&);
template std::vector<std::shared_ptr<Mlp>> replicate(const std::shared_ptr<Mlp>&);
template std::vector<std::shared_ptr<ManyParameters>> replicate(
    const std::shared_ptr<ManyParameters>&);

}  // namespace lockstep::benchmarks::libtorch_peer
