// SPDX-License-Identifier: Apache-2.0
#include "replicate/module_tensors.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "replicate/test_modules.h"

namespace lockstep::replicate {
namespace {

TEST(UniqueParametersTest, ListsEachTensorOnceInRegistrationOrder) {
  const TiedImpl tied;
  ASSERT_EQ(tied.parameters().size(), 4);
  const auto unique = unique_parameters(tied);
  ASSERT_EQ(unique.size(), 2);
  EXPECT_TRUE(unique[0].is_same(tied.a));
  EXPECT_TRUE(unique[1].is_same(tied.left->weight));
}

TEST(UniqueParametersTest, KeepsEqualButDistinctTensorsApart) {
  torch::nn::Module root;
  root.register_module("first", std::make_shared<PlainImpl>());
  root.register_module("second", std::make_shared<PlainImpl>());
  EXPECT_EQ(unique_parameters(root).size(), 2);
}

TEST(UniqueParametersTest, LeavesOutUndefinedParametersAndBuffers) {
  const torch::nn::Linear linear(torch::nn::LinearOptions(3, 2).bias(false));
  EXPECT_EQ(unique_parameters(*linear).size(), 1);
  EXPECT_EQ(unique_parameters(AffineImpl(2)).size(), 1);
  EXPECT_TRUE(unique_parameters(torch::nn::Module()).empty());
}

}  // namespace
}  // namespace lockstep::replicate
