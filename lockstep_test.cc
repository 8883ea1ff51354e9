// SPDX-License-Identifier: Apache-2.0
#include "lockstep.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <vector>

namespace lockstep {
namespace {

TEST(UmbrellaTest, OneIncludeReachesEveryLayer) {
  const std::vector<c10::Device> devices = {c10::kCPU, c10::kCPU};
  const at::Tensor ones = at::ones({4, 2});

  EXPECT_EQ(comm::broadcast(ones, devices).size(), 2);
  EXPECT_EQ(autograd_fns::scatter(ones, devices).size(), 2);

  torch::nn::Linear linear(2, 3);
  EXPECT_EQ(replicate::replicate(linear, devices).size(), 2);
  EXPECT_EQ(parallel::data_parallel(linear, ones, devices).size(0), 4);
}

}  // namespace
}  // namespace lockstep
