// SPDX-License-Identifier: Apache-2.0
// device_decision.h: whether the next forward of a DataParallel uses all devices or one, by its
// policy. Internal to parallel.
#pragma once

#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "parallel/data_parallel_options.h"
#include "parallel/device_chooser.h"
#include "parallel/device_policy.h"

namespace lockstep::parallel::internal {

// Threads: safe.
class DeviceDecision {
 public:
  // Throws: c10::Error if the policy is kAutomatic and a split batch would give other results, see
  //         batch_dependence.h; mode_for() does so too, as a module may go into train mode later.
  DeviceDecision(const char* name, std::shared_ptr<torch::nn::Module> module,
                 std::vector<c10::Device> devices, const DataParallelOptions& options);

  // kReplicas or kOneDevice, for a forward of `rows` rows that is about to start. Under kAutomatic
  // waits for the devices first, while it measures.
  DeviceChoice mode_for(int64_t rows);

  DeviceChoice choice();
  // Throws: c10::Error under another policy than kAutomatic.
  void set(DeviceChoice choice);

 private:
  void check() const;
  bool parameters_were_updated();

  const char* const name_;
  const std::shared_ptr<torch::nn::Module> module_;
  const std::vector<c10::Device> devices_;
  const DevicePolicy policy_;
  const bool may_change_results_;
  std::mutex mutex_;
  DeviceChooser chooser_;
  uint64_t seen_versions_ = 0;
};

}  // namespace lockstep::parallel::internal
