// SPDX-License-Identifier: Apache-2.0
// gpu_device_sets: the other list of device sets, for machines with CUDA devices. A program that is
// linked with //testing:gpu_device_sets in place of //testing:device_sets runs the same suites on
// them, and brings no simulated devices.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/nccl/nccl_api.h"
#include "testing/device_sets.h"

namespace lockstep::testing {

// How many CUDA devices the process can use. 0 without a driver, or without LibTorch's CUDA
// library.
int64_t cuda_device_count();

// cpu2, so that no suite is without a test; with a device cuda1, and cudatwice, which lists it
// twice; with more devices cuda2 and cuda3 connected by copies, and nccl2 and nccl3 by NCCL.
// Engines of cuda1 and cudatwice are those over `nccl`, which leave such lists to copies. Without
// `nccl` there are copies alone.
std::vector<DeviceSet> gpu_device_sets(int64_t cuda_devices, const comm::nccl::NcclApi* nccl);

}  // namespace lockstep::testing
