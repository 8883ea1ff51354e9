// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

at::Tensor sum_with_macro();
at::Tensor sum_without_macro();

namespace {

// The two live in one program: headers that differed by the macro would break the one-definition
// rule here (pytorch#18837).
TEST(MacroTest, UseCudaChangesNothing) {
  EXPECT_TRUE(sum_with_macro().equal(sum_without_macro()));
  EXPECT_EQ(sum_with_macro().sum().item<float>(), 4);
}

}  // namespace
