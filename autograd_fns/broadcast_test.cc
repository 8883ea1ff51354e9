// SPDX-License-Identifier: Apache-2.0
#include "autograd_fns/broadcast.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "comm/coalesce.h"
#include "testing/device_sets.h"
#include "testing/gradcheck.h"
#include "testing/matchers.h"
#include "testing/random.h"

namespace lockstep::autograd_fns {
namespace {

using lockstep::testing::AllClose;
using lockstep::testing::BitwiseEqual;
using lockstep::testing::gradcheck;
using lockstep::testing::gradgradcheck;
using lockstep::testing::random_tensor;
using lockstep::testing::ThrowsError;

class AutogradBroadcastTest : public ::testing::TestWithParam<lockstep::testing::DeviceSet> {
 protected:
  const std::vector<c10::Device>& devices() const { return GetParam().devices; }
  size_t k() const { return devices().size(); }

  at::Tensor leaf(at::IntArrayRef sizes, uint64_t seed, at::ScalarType dtype = at::kDouble) const {
    return random_tensor(sizes, seed, dtype).to(devices()[0]).requires_grad_();
  }
  std::vector<at::Tensor> run(at::TensorList tensors) const {
    comm::CoalesceOptions options;
    options.collectives = GetParam().collectives;
    return broadcast(tensors, devices(), options);
  }
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS(AutogradBroadcastTest);

TEST_P(AutogradBroadcastTest, OutputsAreDeviceMajorAndEqualTheTensors) {
  const std::vector<at::Tensor> tensors = {leaf({2, 3}, 1), leaf({4}, 2)};
  const auto outputs = run(tensors);
  ASSERT_EQ(outputs.size(), k() * 2);
  for (size_t i = 0; i < k(); ++i) {
    for (size_t t = 0; t < 2; ++t) {
      EXPECT_THAT(outputs[i * 2 + t], BitwiseEqual(tensors[t]));
      EXPECT_EQ(outputs[i * 2 + t].device(), devices()[i]);
    }
  }
}

TEST_P(AutogradBroadcastTest, TakesTensorsOnAnyDeviceAndGivesTheirGradientsThere) {
  for (const c10::Device source : {c10::Device(at::kCPU), devices().back()}) {
    const at::Tensor x = random_tensor({3}, 1).to(source).requires_grad_();
    at::Tensor total = at::zeros({}, at::dtype(at::kDouble).device(devices()[0]));
    const auto outputs = run({x});
    for (size_t i = 0; i < k(); ++i) {
      EXPECT_EQ(outputs[i].device(), devices()[i]);
      total = total + outputs[i].pow(2).sum().to(devices()[0]);
    }
    total.backward();
    EXPECT_THAT(x.grad(), AllClose(x.detach() * 2 * static_cast<double>(k())));
    EXPECT_EQ(x.grad().device(), source);
  }
}

TEST_P(AutogradBroadcastTest, FirstEntryAtHomeSharesMemoryAndLaterOnesDoNot) {
  const at::Tensor x = leaf({3}, 1);
  const auto outputs = run({x});
  EXPECT_TRUE(outputs[0].is_alias_of(x));
  for (size_t i = 1; i < k(); ++i) {
    EXPECT_FALSE(outputs[i].is_alias_of(x));
  }
}

TEST_P(AutogradBroadcastTest, NoTensorsGiveNoOutputsAndUndefinedStaysUndefined) {
  EXPECT_TRUE(run({}).empty());
  const auto outputs = run({at::Tensor(), leaf({2}, 1)});
  for (size_t i = 0; i < k(); ++i) {
    EXPECT_FALSE(outputs[i * 2].defined());
    EXPECT_TRUE(outputs[i * 2 + 1].defined());
  }
}

TEST_P(AutogradBroadcastTest, OutputsNeedGradExactlyWhereTheTensorsDo) {
  const at::Tensor frozen = random_tensor({2}, 1).to(devices()[0]);
  const at::Tensor counter = at::zeros({}, frozen.options().dtype(at::kLong));
  const auto outputs = run({frozen, leaf({2}, 2), counter});
  for (size_t i = 0; i < k(); ++i) {
    EXPECT_FALSE(outputs[i * 3].requires_grad());
    EXPECT_TRUE(outputs[i * 3 + 1].requires_grad());
    EXPECT_FALSE(outputs[i * 3 + 2].requires_grad());
  }
  EXPECT_TRUE(outputs[0].is_same(frozen));
}

TEST_P(AutogradBroadcastTest, RecordsOneNodeForAllTensorsAndDevices) {
  const at::Tensor x = leaf({2}, 1);
  const at::Tensor y = leaf({3}, 2);
  const auto outputs = run({x, random_tensor({2}, 3).to(devices()[0]), y});
  const auto node = outputs[0].grad_fn();
  for (size_t i = 0; i < k(); ++i) {
    EXPECT_EQ(outputs[i * 3].grad_fn(), node);
    EXPECT_EQ(outputs[i * 3 + 2].grad_fn(), node);
  }
  EXPECT_EQ(node->name(), "lockstep::BroadcastBackward");
  EXPECT_EQ(node->num_inputs(), k() * 2);
  ASSERT_EQ(node->num_outputs(), 2);
  EXPECT_EQ(node->next_edge(0).function, torch::autograd::impl::grad_accumulator(x));
  EXPECT_EQ(node->next_edge(1).function, torch::autograd::impl::grad_accumulator(y));
}

TEST_P(AutogradBroadcastTest, NumericGradientsOfBothOrders) {
  const std::vector<at::Tensor> inputs = {leaf({2, 2}, 1), leaf({3}, 2), leaf({}, 3)};
  const auto function = [&](const auto& in) { return run(in); };
  EXPECT_TRUE(gradcheck(function, inputs));
  EXPECT_TRUE(gradgradcheck(function, inputs));
  // Nonlinear behind it, so that second order gradients are not zero.
  const auto cubed = [&](const auto& in) {
    auto outputs = run(in);
    for (size_t i = 0; i < outputs.size(); ++i) {
      outputs[i] = outputs[i].pow(3) * static_cast<double>(i + 1);
    }
    return outputs;
  };
  EXPECT_TRUE(gradcheck(cubed, inputs));
  EXPECT_TRUE(gradgradcheck(cubed, inputs));
}

TEST_P(AutogradBroadcastTest, NumericGradientsOfBothOrdersForComplexTensors) {
  const auto function = [&](const auto& in) {
    auto outputs = run(in);
    for (at::Tensor& output : outputs) {
      output = output * output;
    }
    return outputs;
  };
  const std::vector<at::Tensor> inputs = {leaf({2}, 1, at::kComplexDouble), leaf({2}, 2)};
  EXPECT_TRUE(gradcheck(function, inputs));
  EXPECT_TRUE(gradgradcheck(function, inputs));
}

TEST_P(AutogradBroadcastTest, ExpandedGradientOfSumReachesTheLeaf) {
  const at::Tensor x = at::ones({5}, devices()[0]).requires_grad_();
  at::Tensor total = at::zeros({}, devices()[0]);
  for (const at::Tensor& output : run({x})) {
    total = total + output.sum().to(devices()[0]);
  }
  total.backward();
  EXPECT_THAT(x.grad(), BitwiseEqual(at::full({5}, static_cast<float>(k()))));
}

TEST_P(AutogradBroadcastTest, GradientFromOneDeviceOnlyAndFromNone) {
  const at::Tensor x = leaf({2}, 1);
  const at::Tensor unused = leaf({2}, 2);
  const auto outputs = run({x, unused});
  outputs[(k() - 1) * 2].sum().backward();
  EXPECT_THAT(x.grad(), BitwiseEqual(at::ones({2}, at::kDouble)));
  EXPECT_FALSE(unused.grad().defined());
}

TEST_P(AutogradBroadcastTest, SparseGradientsOfAnEmbeddingAreSummedSparse) {
  const at::Tensor table = at::ones({10, 3}, devices()[0]).requires_grad_();
  const auto outputs = run({table});
  at::Tensor total = at::zeros({}, devices()[0]);
  at::Tensor expected = at::zeros({10, 3});
  for (size_t i = 0; i < k(); ++i) {
    const int64_t first = static_cast<int64_t>(i) + 1;
    const at::Tensor rows = at::tensor({first, first + 1}).to(devices()[i]);
    total = total + at::embedding(outputs[i], rows, /*padding_idx=*/-1,
                                  /*scale_grad_by_freq=*/false, /*sparse=*/true)
                        .sum()
                        .to(devices()[0]);
    expected[first] += 1;
    expected[first + 1] += 1;
  }
  total.backward();
  ASSERT_TRUE(table.grad().is_sparse());
  EXPECT_THAT(table.grad().coalesce(), AllClose(expected.to_sparse()));
}

TEST_P(AutogradBroadcastTest, RunsBackwardTwiceOnAKeptGraph) {
  const at::Tensor x = leaf({2}, 1);
  at::Tensor total = at::zeros({}, x.options());
  for (const at::Tensor& output : run({x})) {
    total = total + (output * output).sum().to(devices()[0]);
  }
  const auto first = torch::autograd::grad({total}, {x}, {}, /*retain_graph=*/true);
  const auto second = torch::autograd::grad({total}, {x});
  EXPECT_THAT(second[0], BitwiseEqual(first[0]));
  EXPECT_THAT(first[0], AllClose(x * 2 * static_cast<double>(k())));
}

TEST_P(AutogradBroadcastTest, GradientPenaltyGivesExactSecondOrderGradients) {
  const at::Tensor weight = at::full({4}, 0.5, at::dtype(at::kDouble).device(devices()[0]));
  weight.requires_grad_();
  at::Tensor penalty = at::zeros({}, weight.options());
  for (const at::Tensor& copy : run({weight})) {
    const at::Tensor x = at::ones({4}, copy.options()).requires_grad_();
    const auto slope = torch::autograd::grad({(copy * x * x).sum()}, {x}, {},
                                             /*retain_graph=*/true, /*create_graph=*/true);
    penalty = penalty + slope[0].sum().to(devices()[0]);
  }
  penalty.backward();
  EXPECT_THAT(weight.grad(), BitwiseEqual(at::full({4}, 2.0 * k(), at::kDouble)));
}

TEST_P(AutogradBroadcastTest, RecordsNothingWhenGradModeIsOff) {
  const at::NoGradGuard no_grad;
  const at::Tensor x = leaf({2}, 1);
  for (const at::Tensor& output : run({x})) {
    EXPECT_FALSE(output.requires_grad());
    EXPECT_THAT(output, BitwiseEqual(x.detach()));
  }
}

TEST_P(AutogradBroadcastTest, RefusesInPlaceUseOfTheViewOfTheSource) {
  const at::Tensor x = leaf({2}, 1);
  EXPECT_THAT([&] { run({x})[0].add_(1); }, ThrowsError("is a view and is being modified inplace"));
  const at::Tensor non_leaf_view = (leaf({2, 2}, 1) * 1).select(0, 1);
  EXPECT_THAT([&] { run({non_leaf_view})[0].add_(1); },
              ThrowsError("is a view and is being modified inplace"));
}

TEST_P(AutogradBroadcastTest, InPlaceUseOfAFreshCopyIsRecordedAndLeavesTheRestAlone) {
  const at::Tensor x = leaf({2}, 1);
  const at::Tensor before = x.detach().clone();
  const auto outputs = run({x, leaf({2}, 2)});
  for (size_t i = 1; i < k(); ++i) {
    outputs[i * 2].mul_(3);
    EXPECT_EQ(outputs[i * 2 + 1]._version(), 0);
    const auto slope = torch::autograd::grad({outputs[i * 2].sum()}, {x}, {}, true);
    EXPECT_THAT(slope[0], BitwiseEqual(at::full({2}, 3.0, at::kDouble)));
  }
  EXPECT_THAT(x.detach(), BitwiseEqual(before));
}

TEST_P(AutogradBroadcastTest, BackwardThrowsWhenTheSourceWasWrittenAfterUse) {
  const at::Tensor x = leaf({2}, 1);
  const at::Tensor loss = run({x})[0].pow(2).sum();
  {
    const at::NoGradGuard no_grad;
    x.add_(1);
  }
  EXPECT_THAT([&] { loss.backward(); },
              ThrowsError("its base or another view of its base has been modified inplace"));
}

TEST(BroadcastErrorsTest, RefusesAnEmptyDeviceList) {
  EXPECT_THAT([] { broadcast({at::ones({2})}, {}); }, ThrowsError("[broadcast_coalesced]"));
}

}  // namespace
}  // namespace lockstep::autograd_fns
