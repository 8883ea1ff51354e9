// SPDX-License-Identifier: Apache-2.0
// seeded_generators.h: a generator per device, all from one seed. Internal to the project.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

namespace lockstep::replicate::internal {

// Threads: not safe; the generators are as LibTorch's are.
class SeededGenerators {
 public:
  // Whether LibTorch draws by generators on devices of this type.
  static bool exist_on(c10::DeviceType type);

  // Every device's generator starts anew from `seed`, as after torch::manual_seed(seed).
  void seed(uint64_t seed);

  // The device's generator, made when first asked for; undefined if its backend makes none.
  at::Generator on(c10::Device device);

 private:
  struct Entry {
    c10::Device device;
    at::Generator generator;
    bool seeded;
  };

  uint64_t seed_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace lockstep::replicate::internal
