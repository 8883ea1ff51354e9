// SPDX-License-Identifier: Apache-2.0
// devices: which devices to train on, from the text of a flag.
//   std::vector<c10::Device> devices = parse_devices("cuda:0,cuda:1", torch::cuda::device_count());
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fashion_mnist {

// The devices that `text` lists, separated by commas; "cpu" may be named several times, once for
// each replica. For an empty text every CUDA device, and without one two replicas on the CPU.
// Throws:  std::runtime_error in one sentence for a name that is no device, a CUDA device that is
//          not there or is named twice, and for a list that mixes CPU and CUDA.
std::vector<c10::Device> parse_devices(const std::string& text, int64_t num_cuda_devices);

// "cpu,cpu"
std::string device_names(const std::vector<c10::Device>& devices);

}  // namespace fashion_mnist
