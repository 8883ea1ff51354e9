// SPDX-License-Identifier: Apache-2.0
// replicate_options.h: what replicate(), ReplicaSet and DataParallel let a caller choose.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "comm/device_collectives.h"

namespace lockstep::replicate {

// Runs task(0) ... task(n - 1), in any order and on any threads, and returns when all are done.
using Executor = std::function<void(int64_t n, const std::function<void(int64_t)>& task)>;

struct ReplicateOptions {
  // Makes an empty twin of the module: for a module that is neither Cloneable nor Replicatable.
  // Takes precedence over both when set. Called once per replica.
  std::function<std::shared_ptr<torch::nn::Module>()> factory;

  // Runs the work on the replicas' structure; one after another on the calling thread if empty.
  Executor executor;

  // Whether replicas on the original's own device share the storage of its parameters, which costs
  // no memory and no copies. false gives each replica but the first storage of its own, as on
  // another device.
  bool share_parameters = true;

  // Says which modules write to their own parameters in forward. Replicas that run at the same time
  // must not share those, so each has storage of its own whatever share_parameters says, and what
  // replica 0 writes is what the module keeps. Empty: none do. Called from several threads.
  std::function<bool(const torch::nn::Module& module)> writes_parameters;

  // Moves the values; null means the default for the device type.
  comm::DeviceCollectives* collectives = nullptr;

  // Largest flat buffer, in bytes, that values are packed into on their way to another device.
  int64_t buffer_bytes = 10 * 1024 * 1024;
};

}  // namespace lockstep::replicate
