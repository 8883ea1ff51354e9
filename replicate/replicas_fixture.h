// SPDX-License-Identifier: Apache-2.0
// replicas_fixture.h: what the suites of this folder that run over device sets share.
//   class ReplicateTest : public ReplicasTest {};
//   LOCKSTEP_INSTANTIATE_DEVICE_SETS(ReplicateTest);
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <vector>

#include "replicate/replicate_options.h"
#include "testing/device_sets.h"
#include "testing/random.h"

namespace lockstep::replicate {

class ReplicasTest : public ::testing::TestWithParam<testing::DeviceSet> {
 protected:
  const std::vector<c10::Device>& devices() const { return GetParam().devices; }
  c10::Device first() const { return devices()[0]; }
  int64_t k() const { return static_cast<int64_t>(devices().size()); }

  ReplicateOptions options(bool share_parameters = true) const {
    ReplicateOptions options;
    options.share_parameters = share_parameters;
    options.collectives = GetParam().collectives;
    return options;
  }

  // Both on the first device, where originals are.
  template <class Module>
  Module placed(Module module) const {
    module->to(first());
    return module;
  }
  at::Tensor data(at::IntArrayRef sizes, uint64_t seed, at::ScalarType dtype = at::kDouble) const {
    return testing::random_tensor(sizes, seed, dtype).to(first());
  }
};

// `data` where the module or replica is; recorded, so that its gradient finds the way back.
inline at::Tensor beside(const torch::nn::Module& module, const at::Tensor& data) {
  return data.to(module.parameters().at(0).device());
}

}  // namespace lockstep::replicate
