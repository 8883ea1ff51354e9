// SPDX-License-Identifier: Apache-2.0
#include "parallel/data_parallel.h"

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace lockstep::parallel::internal {
namespace {

constexpr const char* kName = "data_parallel";

std::vector<c10::Device> all_cuda_devices() {
  std::vector<c10::Device> devices;
  if (at::hasCUDA()) {
    const c10::DeviceIndex count = c10::impl::VirtualGuardImpl(c10::kCUDA).deviceCount();
    for (c10::DeviceIndex i = 0; i < count; ++i) {
      devices.emplace_back(c10::kCUDA, i);
    }
  }
  TORCH_CHECK(!devices.empty(), "[", kName,
              "] no device was given and no CUDA device was found; name the devices, for example "
              "{torch::kCPU, torch::kCPU}");
  return devices;
}

}  // namespace

std::vector<c10::Device> devices_for_call(const std::optional<std::vector<c10::Device>>& devices) {
  return parallel_devices(kName, devices.has_value() ? *devices : all_cuda_devices());
}

std::vector<at::Tensor> run_once(const std::shared_ptr<torch::nn::Module>& module,
                                 c10::ArrayRef<c10::Device> devices, DataParallelOptions options,
                                 const ReplicaCall& call) {
  TORCH_CHECK(options.policy != DevicePolicy::kAutomatic, "[", kName,
              "] DevicePolicy::kAutomatic needs steps to measure: use DataParallel");
  // A replica costs a copy of the module's structure: make none that would have no rows.
  const size_t num_chunks = batch_sizes(kName, call, options.dim, devices.size()).size();
  const auto core = std::make_shared<DataParallelCore>(kName, module, devices, std::move(options),
                                                       &shared_worker_pool(), num_chunks);
  return core->run(call);
}

}  // namespace lockstep::parallel::internal
