// SPDX-License-Identifier: Apache-2.0
#include "parallel/nested_tensors.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace lockstep::parallel::internal {
namespace {

// The one-element tensors found in `value`, as numbers.
template <class Value>
std::vector<int64_t> found_in(Value& value) {
  std::vector<int64_t> found;
  visit_tensors(value, [&](const at::Tensor& tensor) {
    found.push_back(tensor.defined() ? tensor.item<int64_t>() : -1);
  });
  return found;
}

at::Tensor number(int64_t value) { return at::full({1}, value, at::kLong); }

TEST(VisitTensorsTest, FindsTensorsInAnyNestingInOrder) {
  const std::map<std::string, at::Tensor> map{{"b", number(7)}, {"a", number(6)}};
  const auto value =
      std::make_tuple(number(1), 3, std::pair(std::string("x"), number(2)),
                      std::vector<std::optional<at::Tensor>>{number(3), std::nullopt, number(4)},
                      std::array<at::Tensor, 1>{number(5)}, map);
  EXPECT_EQ(found_in(value), (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7}));
}

TEST(VisitTensorsTest, VisitsUndefinedTensorsToo) {
  const std::vector<at::Tensor> value{at::Tensor(), number(1)};
  EXPECT_EQ(found_in(value), (std::vector<int64_t>{-1, 1}));
}

TEST(VisitTensorsTest, OtherTypesHoldNoTensor) {
  const auto value =
      std::make_tuple(1, 2.5, std::string("text"), std::vector<bool>{true}, std::vector<int>{1, 2});
  EXPECT_TRUE(found_in(value).empty());
}

TEST(VisitTensorsTest, TensorsOfAMutableValueCanBeReplaced) {
  auto value = std::make_tuple(number(1), std::vector<at::Tensor>{number(2)},
                               std::unordered_map<int, at::Tensor>{{0, number(3)}});
  visit_tensors(value, [](at::Tensor& tensor) { tensor = tensor * 10; });
  EXPECT_EQ(found_in(value), (std::vector<int64_t>{10, 20, 30}));
}

}  // namespace
}  // namespace lockstep::parallel::internal
