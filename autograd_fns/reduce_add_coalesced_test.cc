// SPDX-License-Identifier: Apache-2.0
#include "autograd_fns/reduce_add_coalesced.h"

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

using Rows = std::vector<std::vector<at::Tensor>>;

class AutogradReduceAddCoalescedTest
    : public ::testing::TestWithParam<lockstep::testing::DeviceSet> {
 protected:
  const std::vector<c10::Device>& devices() const { return GetParam().devices; }
  size_t k() const { return devices().size(); }

  // Row i on device i: a 2x2 matrix, a vector of 3, a number; all leaves.
  std::vector<at::Tensor> flat_leaves(at::ScalarType dtype = at::kDouble) const {
    std::vector<at::Tensor> flat;
    for (size_t i = 0; i < k(); ++i) {
      for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{2, 2}, {3}, {}}) {
        flat.push_back(
            random_tensor(sizes, flat.size() + 1, dtype).to(devices()[i]).requires_grad_());
      }
    }
    return flat;
  }
  Rows rows(const std::vector<at::Tensor>& flat) const {
    const size_t n = flat.size() / k();
    Rows result;
    for (size_t i = 0; i < k(); ++i) {
      result.emplace_back(flat.begin() + i * n, flat.begin() + (i + 1) * n);
    }
    return result;
  }
  std::vector<at::Tensor> run(const Rows& inputs) const {
    comm::CoalesceOptions options;
    options.collectives = GetParam().collectives;
    return reduce_add_coalesced(inputs, devices()[0], options);
  }
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS(AutogradReduceAddCoalescedTest);

TEST_P(AutogradReduceAddCoalescedTest, SumsInRowOrderIntoFreshTensors) {
  const auto flat = flat_leaves();
  const auto sums = run(rows(flat));
  ASSERT_EQ(sums.size(), 3);
  for (size_t t = 0; t < 3; ++t) {
    at::Tensor expected = flat[t].detach().cpu();
    for (size_t i = 1; i < k(); ++i) {
      expected = expected + flat[i * 3 + t].detach().cpu();
    }
    EXPECT_THAT(sums[t], BitwiseEqual(expected));
    EXPECT_EQ(sums[t].device(), devices()[0]);
    EXPECT_FALSE(sums[t].is_alias_of(flat[t]));
  }
}

TEST_P(AutogradReduceAddCoalescedTest, SumsOnAnyDestinationAndSendsGradientsBack) {
  for (const c10::Device destination : {c10::Device(at::kCPU), devices().back()}) {
    const auto flat = flat_leaves();
    const auto sums = reduce_add_coalesced(rows(flat), destination);
    EXPECT_EQ(sums[1].device(), destination);
    const at::Tensor upstream = random_tensor({3}, 9).to(destination);
    sums[1].backward(upstream);
    for (size_t i = 0; i < k(); ++i) {
      EXPECT_THAT(flat[i * 3 + 1].grad(), BitwiseEqual(upstream));
      EXPECT_EQ(flat[i * 3 + 1].grad().device(), devices()[i]);
    }
  }
}

TEST_P(AutogradReduceAddCoalescedTest, RecordsOneNodeForAllRowsAndTensors) {
  const auto flat = flat_leaves();
  const auto sums = run(rows(flat));
  const auto node = sums[0].grad_fn();
  EXPECT_EQ(node->name(), "lockstep::ReduceAddCoalescedBackward");
  EXPECT_EQ(sums[1].grad_fn(), node);
  EXPECT_EQ(sums[2].grad_fn(), node);
  ASSERT_EQ(node->num_outputs(), flat.size());
  for (size_t e = 0; e < flat.size(); ++e) {
    EXPECT_EQ(node->next_edge(e).function, torch::autograd::impl::grad_accumulator(flat[e]));
  }
}

TEST_P(AutogradReduceAddCoalescedTest, NumericGradientsOfBothOrders) {
  const auto function = [&](const auto& in) { return run(rows(in)); };
  EXPECT_TRUE(gradcheck(function, flat_leaves()));
  EXPECT_TRUE(gradgradcheck(function, flat_leaves()));
  const auto cubed = [&](const auto& in) {
    auto sums = run(rows(in));
    for (at::Tensor& sum : sums) {
      sum = sum.pow(3);
    }
    return sums;
  };
  EXPECT_TRUE(gradcheck(cubed, flat_leaves()));
  EXPECT_TRUE(gradgradcheck(cubed, flat_leaves()));
}

TEST_P(AutogradReduceAddCoalescedTest, NumericGradientsOfBothOrdersForComplexTensors) {
  const auto squared = [&](const auto& in) {
    auto sums = run(rows(in));
    for (at::Tensor& sum : sums) {
      sum = sum * sum;
    }
    return sums;
  };
  EXPECT_TRUE(gradcheck(squared, flat_leaves(at::kComplexDouble)));
  EXPECT_TRUE(gradgradcheck(squared, flat_leaves(at::kComplexDouble)));
}

TEST_P(AutogradReduceAddCoalescedTest,
       UndefinedEntriesCountAsZeroAndUndefinedInAllRowsStaysUndefined) {
  const auto flat = flat_leaves();
  Rows inputs = rows(flat);
  for (size_t i = 0; i < k(); ++i) {
    inputs[i][0] = i + 1 == k() ? inputs[i][0] : at::Tensor();
    inputs[i][2] = at::Tensor();
  }
  const auto sums = run(inputs);
  EXPECT_THAT(sums[0].detach(), BitwiseEqual(inputs.back()[0].detach()));
  EXPECT_TRUE(sums[1].requires_grad());
  EXPECT_FALSE(sums[2].defined());

  (sums[0].sum() + sums[1].sum()).backward();
  EXPECT_THAT(inputs.back()[0].grad(), BitwiseEqual(at::ones({2, 2}, at::kDouble)));
  for (size_t i = 0; i < k(); ++i) {
    EXPECT_THAT(inputs[i][1].grad(), BitwiseEqual(at::ones({3}, at::kDouble)));
    EXPECT_FALSE(flat[i * 3 + 2].grad().defined());
  }
}

TEST_P(AutogradReduceAddCoalescedTest, SumsNeedGradExactlyWhereOneEntryDoes) {
  Rows inputs = rows(flat_leaves());
  for (size_t i = 0; i < k(); ++i) {
    inputs[i][0] = inputs[i][0].detach();
    inputs[i][1] = i == 0 ? inputs[i][1] : inputs[i][1].detach();
  }
  const auto sums = run(inputs);
  EXPECT_FALSE(sums[0].requires_grad());
  EXPECT_TRUE(sums[1].requires_grad());
  sums[1].sum().backward();
  EXPECT_THAT(inputs[0][1].grad(), BitwiseEqual(at::ones({3}, at::kDouble)));
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(run(inputs)[1].requires_grad());
}

TEST_P(AutogradReduceAddCoalescedTest, LeafGradientsDoNotShareMemory) {
  const auto flat = flat_leaves();
  const at::Tensor upstream = at::ones({3}, flat[1].options().requires_grad(false));
  run(rows(flat))[1].backward(upstream);
  const at::Tensor before = upstream.clone();
  for (size_t i = 0; i < k(); ++i) {
    flat[i * 3 + 1].grad().mul_(static_cast<double>(i) + 2);
  }
  for (size_t i = 0; i < k(); ++i) {
    EXPECT_THAT(flat[i * 3 + 1].grad(), BitwiseEqual(at::full({3}, i + 2.0, at::kDouble)));
  }
  EXPECT_THAT(upstream, BitwiseEqual(before));
}

TEST_P(AutogradReduceAddCoalescedTest, BackwardMovesNothingToRowsThatNeedNoGradient) {
  Rows inputs = rows(flat_leaves());
  for (size_t i = 1; i < k(); ++i) {
    for (at::Tensor& entry : inputs[i]) {
      entry = entry.detach();
    }
  }
  const at::Tensor loss = run(inputs)[0].sum();
  const int64_t messages = GetParam().counters().messages;
  loss.backward();
  EXPECT_EQ(GetParam().counters().messages, messages);
  EXPECT_THAT(inputs[0][0].grad(), BitwiseEqual(at::ones({2, 2}, at::kDouble)));
}

TEST_P(AutogradReduceAddCoalescedTest, SparseRowsGiveASparseSumWithGradients) {
  Rows inputs;
  at::Tensor expected = at::zeros({4, 2}, at::kDouble);
  for (size_t i = 0; i < k(); ++i) {
    const at::Tensor dense = random_tensor({4, 2}, i + 1);
    expected = expected + dense;
    inputs.push_back({dense.to_sparse(1).to(devices()[i]).requires_grad_()});
  }
  const auto sums = run(inputs);
  ASSERT_TRUE(sums[0].is_sparse());
  EXPECT_THAT(sums[0].detach(), AllClose(expected.to_sparse(1)));
  const auto slopes = torch::autograd::grad({sums[0].to_dense().sum()}, {inputs.back()[0]});
  EXPECT_THAT(slopes[0].to_dense(), BitwiseEqual(at::ones({4, 2}, at::kDouble)));
}

TEST(ReduceAddCoalescedErrorsTest, NamesRowIndexAndDevicesOfARowOnTwoDevices) {
  const at::Tensor host = at::ones({2});
  const at::Tensor meta = at::ones({2}, at::kMeta);
  EXPECT_THAT(
      [&] {
        reduce_add_coalesced(Rows{{host, host}, {host, meta}}, c10::Device(at::kCPU));
      },
      ThrowsError("[reduce_add_coalesced] expected each row on one device, got cpu and meta in "
                  "row 1, at index 1"));
  EXPECT_THAT([&] { reduce_add_coalesced({}, c10::Device(at::kCPU)); },
              ThrowsError("[reduce_add_coalesced]"));
}

}  // namespace
}  // namespace lockstep::autograd_fns
