// SPDX-License-Identifier: Apache-2.0
#include "parallel/data_parallel.h"

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>

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

at::Tensor data_parallel_once(const std::shared_ptr<torch::nn::Module>& module,
                              const at::Tensor& input,
                              const std::optional<std::vector<c10::Device>>& devices,
                              std::optional<c10::Device> output_device, int64_t dim,
                              const ForwardFunction& function) {
  const std::vector<c10::Device> all =
      parallel_devices(kName, devices.has_value() ? *devices : all_cuda_devices());
  // A replica costs a copy of the module's structure: make none that would have no rows.
  const size_t num_chunks = batch_sizes(kName, input, dim, all.size()).size();
  DataParallelOptions options;
  options.output_device = output_device;
  options.dim = dim;
  const auto used = c10::ArrayRef<c10::Device>(all).slice(0, num_chunks);
  const auto core = std::make_shared<DataParallelCore>(kName, module, used, std::move(options),
                                                       &shared_worker_pool());
  const at::Tensor output = core->forward(input, function);
  // A vector with one entry per replica, also where there was one replica because of few rows.
  return output.dim() == 0 && all.size() > 1 ? output.reshape({1}) : output;
}

}  // namespace lockstep::parallel::internal
