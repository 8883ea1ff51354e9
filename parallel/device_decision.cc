// SPDX-License-Identifier: Apache-2.0
#include "parallel/device_decision.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>

#include <utility>

#include "comm/current_streams.h"
#include "parallel/batch_dependence.h"

namespace lockstep::parallel::internal {

DeviceDecision::DeviceDecision(const char* name, std::shared_ptr<torch::nn::Module> module,
                               std::vector<c10::Device> devices, const DataParallelOptions& options)
    : name_(name),
      module_(std::move(module)),
      devices_(std::move(devices)),
      policy_(options.policy),
      may_change_results_(options.allow_automatic_to_change_results) {
  if (module_ != nullptr) {
    check();
  }
}

void DeviceDecision::check() const {
  if (policy_ == DevicePolicy::kAutomatic && devices_.size() > 1 && !may_change_results_) {
    check_batch_independent(name_, *module_);
  }
}

bool DeviceDecision::parameters_were_updated() {
  uint64_t versions = 0;
  for (const at::Tensor& parameter : module_->parameters()) {
    versions += 1 + (parameter.is_inference() ? 0 : parameter._version());
  }
  return std::exchange(seen_versions_, versions) != versions;
}

DeviceChoice DeviceDecision::mode_for(int64_t rows) {
  if (policy_ != DevicePolicy::kAutomatic) {
    return choice();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!at::GradMode::is_enabled()) {
    return chooser_.mode();
  }
  const bool decided = chooser_.choice() != DeviceChoice::kUndecided;
  if (!decided || chooser_.ratio().has_value()) {
    check();  // the clock decides, or has decided
  }
  if (decided) {
    return chooser_.mode();
  }
  const bool updated = parameters_were_updated();
  for (const c10::Stream& stream : comm::current_streams(devices_)) {
    stream.synchronize();
  }
  return chooser_.next(rows, updated, DeviceChooser::Clock::now());
}

DeviceChoice DeviceDecision::choice() {
  if (policy_ == DevicePolicy::kOneDevice || devices_.size() == 1) {
    return DeviceChoice::kOneDevice;
  }
  if (policy_ == DevicePolicy::kReplicas) {
    return DeviceChoice::kReplicas;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  return chooser_.choice();
}

void DeviceDecision::set(DeviceChoice choice) {
  TORCH_CHECK(policy_ == DevicePolicy::kAutomatic, "[", name_,
              "] set_device_choice is for DevicePolicy::kAutomatic, but the policy is ", policy_);
  const std::lock_guard<std::mutex> lock(mutex_);
  chooser_.set(choice);
}

}  // namespace lockstep::parallel::internal
