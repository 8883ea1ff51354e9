// SPDX-License-Identifier: Apache-2.0
// device_operations: what work asks of a CUDA device, counted by having CUDA record it in a graph
// instead of running it.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace lockstep::gpu_check {

struct DeviceOperations {
  int64_t kernels = 0;
  int64_t copies = 0;  // by cudaMemcpyAsync
  int64_t others = 0;  // of which memsets are the usual ones
};

// Runs the work on a stream of its own, so that the allocator holds what it needs, and then records
// it there. The recorded run has no results: the work must not read any.
// Devices: a CUDA device; elsewhere, and if CUDA refuses to record, nothing is returned, and
//   `reason` says why.
std::optional<DeviceOperations> count_device_operations(c10::Device device,
                                                        const std::function<void()>& work,
                                                        std::string* reason);

}  // namespace lockstep::gpu_check
