// SPDX-License-Identifier: Apache-2.0
#include "comm/reduce_add.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/device_sets.h"
#include "testing/matchers.h"
#include "testing/summands.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::BitwiseEqual;
using ::lockstep::testing::DeviceSet;
using ::lockstep::testing::random_on_each;
using ::lockstep::testing::successive_sum;
using ::lockstep::testing::ThrowsError;

const c10::Device kCpu(c10::kCPU);

class ReduceAddTest : public ::testing::TestWithParam<DeviceSet> {
 protected:
  std::vector<at::Tensor> inputs(at::IntArrayRef sizes) const {
    return random_on_each(GetParam().devices, sizes, at::kDouble);
  }
  at::Tensor run(const std::vector<at::Tensor>& inputs) const {
    GetParam().collectives->reset_counters();
    const at::Tensor sum = reduce_add(inputs, GetParam().devices[0], {GetParam().collectives});
    GetParam().sync();
    return sum;
  }
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS(ReduceAddTest);

TEST_P(ReduceAddTest, IsTheSumInListOrderAndLeavesInputsAlone) {
  const std::vector<at::Tensor> x = inputs({5, 5});
  const at::Tensor expected = successive_sum(x);
  const at::Tensor before = x[0].clone();
  const at::Tensor sum = run(x);
  EXPECT_EQ(sum.device(), GetParam().devices[0]);
  EXPECT_THAT(sum, BitwiseEqual(expected));
  EXPECT_THAT(x[0], BitwiseEqual(before));
  const int64_t sent = static_cast<int64_t>(x.size()) - 1;
  EXPECT_EQ(GetParam().counters().messages, sent);
  EXPECT_EQ(GetParam().counters().bytes, 200 * sent);
}

TEST_P(ReduceAddTest, SumsInListOrderOnAnyDestination) {
  const std::vector<at::Tensor> x = inputs({40});
  for (const c10::Device destination : {GetParam().devices.back(), kCpu}) {
    const at::Tensor sum = reduce_add(x, destination, {GetParam().collectives});
    EXPECT_EQ(sum.device(), destination);
    EXPECT_THAT(sum, BitwiseEqual(successive_sum(x)));
  }
}

TEST_P(ReduceAddTest, ResultsNeedNoGradient) {
  std::vector<at::Tensor> x = inputs({3});
  for (at::Tensor& input : x) {
    input.requires_grad_();
  }
  EXPECT_EQ(run(x).requires_grad(), x.size() == 1) << "a single input is returned as it is";
}

TEST_P(ReduceAddTest, KeepsTheStridesOfTheFirstInput) {
  std::vector<at::Tensor> x = inputs({2, 3, 4, 5});
  x[0] = x[0].contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_EQ(run(x).strides(), x[0].strides());
}

TEST_P(ReduceAddTest, AllSparseStaysSparseAndAMixBecomesDense) {
  std::vector<at::Tensor> x = inputs({4, 3});
  const at::Tensor expected = successive_sum(x);
  for (at::Tensor& input : x) {
    input = input.to_sparse();
  }
  const at::Tensor sum = run(x);
  EXPECT_TRUE(sum.is_sparse());
  EXPECT_THAT(sum.to_dense(), BitwiseEqual(expected));
  if (x.size() > 1) {
    x.back() = x.back().to_dense();
    const at::Tensor mixed = run(x);
    EXPECT_FALSE(mixed.is_sparse());
    EXPECT_THAT(mixed, BitwiseEqual(expected));
  }
}

TEST_P(ReduceAddTest, OutWritesTheGivenTensor) {
  const std::vector<at::Tensor> x = inputs({5});
  const at::Tensor output = at::empty_like(x[0]);
  EXPECT_TRUE(reduce_add_out(x, output, {GetParam().collectives}).is_same(output));
  GetParam().sync();
  EXPECT_THAT(output, BitwiseEqual(run(x)));
  EXPECT_GT(output._version(), 0);
}

TEST(ReduceAddRulesTest, StartsAtPositionZeroWhateverTheDestination) {
  const at::Tensor big = at::full({1}, 1e8F);
  const at::Tensor one = at::ones({1});
  EXPECT_EQ(reduce_add({big, one, -big}, kCpu).item<float>(), 0.0F);
  EXPECT_EQ(reduce_add({big, -big, one}, kCpu).item<float>(), 1.0F);
}

TEST(ReduceAddRulesTest, ReturnsASingleInputAtHomeAsItIs) {
  const at::Tensor input = at::ones({2});
  EXPECT_TRUE(reduce_add(input, c10::Device("cpu:0")).is_same(input));
  EXPECT_TRUE(reduce_add(input, c10::Device("meta")).is_meta());
}

TEST(ReduceAddRulesTest, NeedsNoInputOnTheDestination) {
  const at::Tensor sum = reduce_add({at::ones({2}), at::ones({2})}, c10::Device("meta"));
  EXPECT_TRUE(sum.is_meta());
  EXPECT_EQ(sum.sizes(), at::IntArrayRef({2}));
}

TEST(ReduceAddRulesTest, BoolIsALogicalOr) {
  const at::Tensor a = at::ones({2}, at::kBool);
  EXPECT_THAT(reduce_add({a, a, a}, kCpu), BitwiseEqual(a));
}

TEST(ReduceAddRulesTest, RejectsInputsThatDoNotFit) {
  EXPECT_THAT([] { reduce_add({}, kCpu); },
              ThrowsError("[reduce_add] expected at least one input, got an empty list"));
  EXPECT_THAT(
      [] {
        reduce_add({at::ones({2, 3}), at::ones({3, 2})}, kCpu);
      },
      ThrowsError("[reduce_add] expected size [2, 3], got [3, 2], at index 1"));
  EXPECT_THAT(
      [] {
        reduce_add({at::ones({2}), at::ones({2}, at::kInt)}, kCpu);
      },
      ThrowsError("expected dtype Float, got Int, at index 1"));
  EXPECT_THAT(
      [] {
        reduce_add({at::ones({2}), at::Tensor()}, kCpu);
      },
      ThrowsError("expected a defined input, got an undefined tensor, at index 1"));
  EXPECT_THAT(
      [] {
        reduce_add({at::eye(2).to_sparse(2), at::eye(2).to_sparse(1)}, kCpu);
      },
      ThrowsError("expected 2 sparse dims, got 1, at index 1"));
  EXPECT_THAT([] { reduce_add(at::ones({2}), c10::Device("cpu:1")); },
              ThrowsError("[reduce_add] expected cpu or cpu:0, got cpu:1"));
}

TEST(ReduceAddOutTest, SumsSparseInputsIntoADenseOutput) {
  const at::Tensor output = at::zeros({2, 2});
  reduce_add_out({at::eye(2).to_sparse(), at::eye(2).to_sparse()}, output);
  EXPECT_THAT(output, BitwiseEqual(2 * at::eye(2)));
  reduce_add_out(at::ones({2, 2}), output);
  EXPECT_THAT(output, BitwiseEqual(at::ones({2, 2})));
}

TEST(ReduceAddOutTest, RejectsOutputsThatDoNotFit) {
  const std::vector<at::Tensor> inputs = {at::ones({4}), at::ones({4})};
  EXPECT_THAT([&] { reduce_add_out(inputs, at::ones({5})); },
              ThrowsError("[reduce_add_out] expected an output of size [4], got [5]"));
  EXPECT_THAT([&] { reduce_add_out(inputs, at::ones({4}, at::kInt)); },
              ThrowsError("expected an output of dtype Float, got Int"));
  EXPECT_THAT([&] { reduce_add_out(inputs, at::ones({4}).to_sparse()); },
              ThrowsError("expected a dense output"));
  EXPECT_THAT([&] { reduce_add_out(inputs, inputs[1]); },
              ThrowsError("expected an output apart from the inputs, got the input, at index 1"));
  const at::Tensor buffer = at::ones({6});
  EXPECT_THAT(
      [&] {
        reduce_add_out({inputs[0], buffer.slice(0, 0, 4)}, buffer.slice(0, 2, 6));
      },
      ThrowsError("got one that overlaps it, at index 1"));
  EXPECT_THAT(inputs[1], BitwiseEqual(at::ones({4})));
}

}  // namespace
}  // namespace lockstep::comm
