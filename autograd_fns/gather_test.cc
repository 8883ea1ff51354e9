// SPDX-License-Identifier: Apache-2.0
#include "autograd_fns/gather.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <string>
#include <utility>

#include "testing/device_sets.h"
#include "testing/gradcheck.h"
#include "testing/matchers.h"
#include "testing/random.h"
#include "testing/warnings.h"

namespace lockstep::autograd_fns {
namespace {

using lockstep::testing::BitwiseEqual;
using lockstep::testing::gradcheck;
using lockstep::testing::gradgradcheck;
using lockstep::testing::random_tensor;
using lockstep::testing::ThrowsError;
using lockstep::testing::Warnings;
using ::testing::HasSubstr;

const c10::Device kHost(at::kCPU);

class AutogradGatherTest : public ::testing::TestWithParam<lockstep::testing::DeviceSet> {
 protected:
  const std::vector<c10::Device>& devices() const { return GetParam().devices; }
  int64_t k() const { return static_cast<int64_t>(devices().size()); }

  // Leaf i on device i, with i + 1 rows.
  std::vector<at::Tensor> leaves(int64_t columns, at::ScalarType dtype = at::kDouble) const {
    std::vector<at::Tensor> result;
    for (int64_t i = 0; i < k(); ++i) {
      result.push_back(
          random_tensor({i + 1, columns}, i + 1, dtype).to(devices()[i]).requires_grad_());
    }
    return result;
  }
  std::vector<at::Tensor> scalars(at::ScalarType dtype = at::kDouble) const {
    std::vector<at::Tensor> result;
    for (int64_t i = 0; i < k(); ++i) {
      result.push_back(random_tensor({}, i + 1, dtype).to(devices()[i]).requires_grad_());
    }
    return result;
  }
  at::Tensor run(at::TensorList inputs, int64_t dim = 0) const {
    return autograd_fns::gather(inputs, devices()[0], dim, {GetParam().collectives});
  }
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS(AutogradGatherTest);

TEST_P(AutogradGatherTest, JoinsInOrderOnTheDestination) {
  for (const c10::Device destination : {devices()[0], devices().back(), kHost}) {
    const auto inputs = leaves(2);
    const at::Tensor joined = autograd_fns::gather(inputs, destination);
    EXPECT_EQ(joined.device(), destination);
    std::vector<at::Tensor> on_host;
    for (const at::Tensor& input : inputs) {
      on_host.push_back(input.detach().cpu());
    }
    EXPECT_THAT(joined, BitwiseEqual(at::cat(on_host)));
  }
}

TEST_P(AutogradGatherTest, ExpandedGradientOfSumReachesEachLeafOnItsDevice) {
  std::vector<at::Tensor> inputs;
  for (const c10::Device device : devices()) {
    inputs.push_back(at::ones({5}, device).requires_grad_());
  }
  run(inputs).sum().backward();
  for (const at::Tensor& input : inputs) {
    EXPECT_THAT(input.grad(), BitwiseEqual(at::ones({5})));
    EXPECT_EQ(input.grad().device(), input.device());
  }
}

TEST_P(AutogradGatherTest, UpstreamIsSplitByTheInputsSizes) {
  for (const c10::Device destination : {devices()[0], devices().back(), kHost}) {
    const auto inputs = leaves(4);
    const at::Tensor joined = autograd_fns::gather(inputs, destination);
    const at::Tensor upstream = random_tensor(joined.sizes(), 9).to(destination);
    joined.backward(upstream);
    int64_t start = 0;
    for (const at::Tensor& input : inputs) {
      EXPECT_THAT(input.grad(), BitwiseEqual(upstream.narrow(0, start, input.size(0))));
      EXPECT_EQ(input.grad().device(), input.device());
      start += input.size(0);
      EXPECT_FALSE(input.grad().is_alias_of(upstream));
    }
  }
}

TEST_P(AutogradGatherTest, RecordsOneNodeForAllInputs) {
  const auto inputs = leaves(2);
  const auto node = run(inputs).grad_fn();
  EXPECT_EQ(node->name(), "lockstep::GatherBackward");
  ASSERT_EQ(node->num_outputs(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(node->next_edge(i).function, torch::autograd::impl::grad_accumulator(inputs[i]));
  }
}

TEST_P(AutogradGatherTest, NumericGradientsOfBothOrders) {
  for (const at::ScalarType dtype : {at::kDouble, at::kComplexDouble}) {
    const auto function = [&](const auto& in) { return std::vector<at::Tensor>{run(in)}; };
    EXPECT_TRUE(gradcheck(function, leaves(2, dtype)));
    EXPECT_TRUE(gradgradcheck(function, leaves(2, dtype)));
    const auto along_last = [&](const auto& in) {
      std::vector<at::Tensor> columns;
      for (const at::Tensor& input : in) {
        columns.push_back(input.t());
      }
      const at::Tensor joined = run(columns, -1);
      return std::vector<at::Tensor>{joined * joined * joined};
    };
    EXPECT_TRUE(gradcheck(along_last, leaves(2, dtype)));
    EXPECT_TRUE(gradgradcheck(along_last, leaves(2, dtype)));
  }
}

TEST_P(AutogradGatherTest, ScalarsBecomeAVectorAndTheirGradientsScalars) {
  Warnings warnings;
  for (const auto& [dim, destination] :
       {std::pair(0, devices()[0]), std::pair(-1, devices()[0]), std::pair(0, kHost)}) {
    const auto inputs = scalars();
    const at::Tensor joined = autograd_fns::gather(inputs, destination, dim);
    ASSERT_EQ(joined.sizes(), at::IntArrayRef({k()}));
    const at::Tensor upstream = random_tensor({k()}, 9).to(destination);
    // Asked directly: the engine would sum a gradient of size [1] to a number without a word.
    const auto slopes = (*joined.grad_fn())({upstream});
    joined.backward(upstream);
    for (int64_t i = 0; i < k(); ++i) {
      EXPECT_EQ(slopes[i].dim(), 0);
      EXPECT_THAT(joined.detach()[i], BitwiseEqual(inputs[i].detach()));
      EXPECT_THAT(inputs[i].grad(), BitwiseEqual(upstream[i]));
    }
  }
}

TEST_P(AutogradGatherTest, NumericGradientsOfBothOrdersForScalars) {
  Warnings warnings;
  const auto squared = [&](const auto& in) {
    const at::Tensor joined = run(in);
    return std::vector<at::Tensor>{joined * joined};
  };
  for (const at::ScalarType dtype : {at::kDouble, at::kComplexDouble}) {
    EXPECT_TRUE(gradcheck(squared, scalars(dtype)));
    EXPECT_TRUE(gradgradcheck(squared, scalars(dtype)));
  }
}

TEST_P(AutogradGatherTest, ScalarsGiveOneWarningACallAndOthersNone) {
  Warnings warnings;
  run(leaves(2));
  EXPECT_TRUE(warnings.messages.empty());
  run(scalars());
  ASSERT_EQ(warnings.messages.size(), 1);
  EXPECT_THAT(warnings.messages[0], HasSubstr("[gather] the inputs have no dimension"));
}

TEST_P(AutogradGatherTest, NeedsGradExactlyIfOneInputDoes) {
  auto inputs = leaves(2);
  for (size_t i = 1; i < inputs.size(); ++i) {
    inputs[i] = inputs[i].detach();
  }
  const at::Tensor joined = run(inputs);
  EXPECT_TRUE(joined.requires_grad());
  joined.sum().backward();
  EXPECT_THAT(inputs[0].grad(), BitwiseEqual(at::ones({1, 2}, at::kDouble)));

  inputs[0] = inputs[0].detach();
  EXPECT_FALSE(run(inputs).requires_grad());
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(run(leaves(2)).requires_grad());
}

TEST_P(AutogradGatherTest, UndefinedGradientStaysUndefined) {
  const auto slopes = run(leaves(2)).grad_fn()->operator()({at::Tensor()});
  ASSERT_EQ(slopes.size(), devices().size());
  for (const at::Tensor& slope : slopes) {
    EXPECT_FALSE(slope.defined());
  }
}

TEST_P(AutogradGatherTest, RunsBackwardTwiceOnAKeptGraph) {
  const auto inputs = leaves(2);
  const at::Tensor loss = run(inputs).pow(2).sum();
  const auto first = torch::autograd::grad({loss}, inputs, {}, /*retain_graph=*/true);
  const auto second = torch::autograd::grad({loss}, inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_THAT(second[i], BitwiseEqual(first[i]));
  }
}

TEST_P(AutogradGatherTest, InPlaceUseOfTheResultIsRecordedAndLeavesInputsAlone) {
  const auto inputs = leaves(2);
  const at::Tensor before = inputs[0].detach().clone();
  run(inputs).mul_(3).sum().backward();
  EXPECT_THAT(inputs[0].detach(), BitwiseEqual(before));
  EXPECT_THAT(inputs[0].grad(), BitwiseEqual(at::full({1, 2}, 3.0, at::kDouble)));
}

TEST_P(AutogradGatherTest, KeepsTheMemoryFormatAllInputsAgreeOn) {
  std::vector<at::Tensor> inputs;
  for (const c10::Device device : devices()) {
    inputs.push_back(random_tensor({5, 3, 4, 4}, 1, at::kFloat)
                         .contiguous(at::MemoryFormat::ChannelsLast)
                         .to(device)
                         .requires_grad_());
  }
  EXPECT_TRUE(run(inputs).is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(GatherErrorsTest, NamesBothShapesTheIndexAndTheDim) {
  const std::vector<at::Tensor> unequal = {at::ones({4, 5}).requires_grad_(), at::ones({4, 3})};
  const auto join = [&] { autograd_fns::gather(unequal, kHost); };
  EXPECT_THAT(join, ThrowsError("[gather]"));
  EXPECT_THAT(join, ThrowsError("[4, 5]"));
  EXPECT_THAT(join, ThrowsError("[4, 3]"));
  EXPECT_THAT(join, ThrowsError("index 1"));
  EXPECT_THAT(join, ThrowsError("dim 0"));
}

TEST(GatherErrorsTest, PassesOnTheErrorsOfComm) {
  EXPECT_THAT([] { autograd_fns::gather({}, kHost); }, ThrowsError("[gather]"));
  EXPECT_THAT(
      [] {
        autograd_fns::gather({at::ones({}), at::ones({1})}, kHost);
      },
      ThrowsError("[gather]"));
  EXPECT_THAT(
      [] {
        autograd_fns::gather({at::ones({}), at::ones({})}, kHost, 1);
      },
      ThrowsError("[gather]"));
  EXPECT_THAT(
      [] {
        autograd_fns::gather({at::ones({1}), at::Tensor()}, kHost);
      },
      ThrowsError("[gather]"));
}

}  // namespace
}  // namespace lockstep::autograd_fns
