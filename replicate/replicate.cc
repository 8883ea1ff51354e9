// SPDX-License-Identifier: Apache-2.0
#include "replicate/replicate.h"

#include "replicate/replica_state.h"

namespace lockstep::replicate::internal {

std::vector<std::shared_ptr<torch::nn::Module>> replicate_module(
    const std::shared_ptr<torch::nn::Module>& module, c10::ArrayRef<c10::Device> devices,
    const ReplicateOptions& options) {
  if (devices.empty()) {
    return {};
  }
  return make_replica_state(module, devices, options)->replicas();
}

}  // namespace lockstep::replicate::internal
