// SPDX-License-Identifier: Apache-2.0
#include "testing/device_sets.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <vector>

#include "comm/all_reduce.h"

namespace {

class OutsideTest : public ::testing::TestWithParam<lockstep::testing::DeviceSet> {};
LOCKSTEP_INSTANTIATE_DEVICE_SETS(OutsideTest);

TEST_P(OutsideTest, SumsOverEveryDeviceSet) {
  std::vector<at::Tensor> ones;
  for (const c10::Device device : GetParam().devices) {
    ones.push_back(at::ones({2}, at::device(device)));
  }
  lockstep::comm::AllReduceOptions options;
  options.collectives = GetParam().collectives;
  for (const at::Tensor& sum : lockstep::comm::all_reduce(ones, options)) {
    EXPECT_EQ(sum.sum().item<float>(), 2.0F * static_cast<float>(ones.size()));
  }
}

}  // namespace
