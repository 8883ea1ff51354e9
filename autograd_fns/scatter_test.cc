// SPDX-License-Identifier: Apache-2.0
#include "autograd_fns/scatter.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "comm/scatter.h"
#include "testing/device_sets.h"
#include "testing/gradcheck.h"
#include "testing/matchers.h"
#include "testing/random.h"

namespace lockstep::autograd_fns {
namespace {

using lockstep::testing::BitwiseEqual;
using lockstep::testing::gradcheck;
using lockstep::testing::gradgradcheck;
using lockstep::testing::random_tensor;
using lockstep::testing::ThrowsError;

class AutogradScatterTest : public ::testing::TestWithParam<lockstep::testing::DeviceSet> {
 protected:
  const std::vector<c10::Device>& devices() const { return GetParam().devices; }
  int64_t k() const { return static_cast<int64_t>(devices().size()); }

  at::Tensor on_home(const at::Tensor& tensor) const { return tensor.to(devices()[0]); }
  at::Tensor leaf(at::IntArrayRef sizes, uint64_t seed, at::ScalarType dtype = at::kDouble) const {
    return on_home(random_tensor(sizes, seed, dtype)).requires_grad_();
  }
  comm::ScatterOptions options(int64_t dim = 0) const {
    comm::ScatterOptions result;
    result.dim = dim;
    result.collectives = GetParam().collectives;
    return result;
  }
  std::vector<at::Tensor> run(const at::Tensor& input, int64_t dim = 0) const {
    return autograd_fns::scatter(input, devices(), options(dim));
  }
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS(AutogradScatterTest);

TEST_P(AutogradScatterTest, PiecesAreTheChunksInOrderOnTheirDevices) {
  for (const int64_t dim : {0, 1, -2}) {
    const at::Tensor x = leaf({5, 7, 3}, 1);
    const auto expected = x.detach().cpu().chunk(k(), dim);
    const auto pieces = run(x, dim);
    ASSERT_EQ(pieces.size(), expected.size());
    for (size_t i = 0; i < pieces.size(); ++i) {
      EXPECT_THAT(pieces[i], BitwiseEqual(expected[i]));
      EXPECT_EQ(pieces[i].device(), devices()[i]);
    }
  }
}

TEST_P(AutogradScatterTest, SumOfAllPiecesGivesOnesToTheSource) {
  const at::Tensor x = on_home(at::ones({10})).requires_grad_();
  at::Tensor total = on_home(at::zeros({}));
  for (const at::Tensor& piece : run(x)) {
    total = total + piece.sum().to(devices()[0]);
  }
  total.backward();
  EXPECT_THAT(x.grad(), BitwiseEqual(at::ones({10})));
  EXPECT_EQ(x.grad().device(), x.device());
}

TEST_P(AutogradScatterTest, TakesAnInputOnAnyDeviceAndGivesItsGradientThere) {
  for (const c10::Device source : {c10::Device(at::kCPU), devices().back()}) {
    const at::Tensor x = random_tensor({2 * k(), 3}, 1).to(source).requires_grad_();
    const auto expected = x.detach().cpu().chunk(k());
    at::Tensor total = on_home(at::zeros({}, at::kDouble));
    const auto pieces = run(x);
    for (size_t i = 0; i < pieces.size(); ++i) {
      EXPECT_THAT(pieces[i], BitwiseEqual(expected[i]));
      EXPECT_EQ(pieces[i].device(), devices()[i]);
      total = total + pieces[i].pow(2).sum().to(devices()[0]);
    }
    total.backward();
    EXPECT_THAT(x.grad(), BitwiseEqual(x.detach() * 2));
    EXPECT_EQ(x.grad().device(), source);
  }
}

TEST_P(AutogradScatterTest, APieceWithoutGradientCountsAsZero) {
  const at::Tensor x = leaf({4, 4}, 1);
  const at::Tensor first = run(x)[0];
  first.backward(at::full_like(first, 2));
  at::Tensor expected = at::zeros({4, 4}, at::kDouble);
  expected.narrow(0, 0, first.size(0)).fill_(2);
  EXPECT_THAT(x.grad(), BitwiseEqual(expected));
}

TEST_P(AutogradScatterTest, NoGradientInAnyPieceStaysUndefined) {
  const at::Tensor x = leaf({4}, 1);
  const auto slopes =
      run(x)[0].grad_fn()->operator()(torch::autograd::variable_list(run(x).size()));
  ASSERT_EQ(slopes.size(), 1);
  EXPECT_FALSE(slopes[0].defined());
}

TEST_P(AutogradScatterTest, RecordsOneNodeForAllPieces) {
  const at::Tensor x = leaf({8}, 1);
  const auto pieces = run(x);
  const auto node = pieces[0].grad_fn();
  EXPECT_EQ(node->name(), "lockstep::ScatterBackward");
  for (const at::Tensor& piece : pieces) {
    EXPECT_EQ(piece.grad_fn(), node);
  }
  ASSERT_EQ(node->num_outputs(), 1);
  EXPECT_EQ(node->next_edge(0).function, torch::autograd::impl::grad_accumulator(x));
}

TEST_P(AutogradScatterTest, NumericGradientsOfBothOrders) {
  for (const at::ScalarType dtype : {at::kDouble, at::kComplexDouble}) {
    for (const int64_t dim : {0, -1}) {
      const auto function = [&](const auto& in) { return run(in[0], dim); };
      EXPECT_TRUE(gradcheck(function, {leaf({3, 4}, 1, dtype)}));
      EXPECT_TRUE(gradgradcheck(function, {leaf({3, 4}, 1, dtype)}));
      const auto cubed = [&](const auto& in) {
        auto pieces = run(in[0], dim);
        for (at::Tensor& piece : pieces) {
          piece = piece * piece * piece;
        }
        return pieces;
      };
      EXPECT_TRUE(gradcheck(cubed, {leaf({3, 4}, 1, dtype)}));
      EXPECT_TRUE(gradgradcheck(cubed, {leaf({3, 4}, 1, dtype)}));
    }
  }
}

TEST_P(AutogradScatterTest, NumericGradientsWithGivenChunkSizes) {
  comm::ScatterOptions sized = options();
  sized.chunk_sizes.emplace(devices().size(), 1);
  sized.chunk_sizes->front() = 3;
  const auto function = [&](const auto& in) {
    return autograd_fns::scatter(in[0], devices(), sized);
  };
  EXPECT_TRUE(gradcheck(function, {leaf({k() + 2, 2}, 1)}));
  EXPECT_TRUE(gradgradcheck(function, {leaf({k() + 2, 2}, 1)}));
}

TEST_P(AutogradScatterTest, EmptyBatchHasAnEmptyGradient) {
  const at::Tensor x = on_home(at::ones({0, 3})).requires_grad_();
  at::Tensor total = on_home(at::zeros({}));
  for (const at::Tensor& piece : run(x)) {
    total = total + piece.sum().to(devices()[0]);
  }
  total.backward();
  EXPECT_THAT(x.grad(), BitwiseEqual(at::zeros({0, 3})));
}

TEST_P(AutogradScatterTest, KeepsTheMemoryFormat) {
  const at::Tensor x =
      leaf({10, 3, 4, 4}, 1, at::kFloat).contiguous(at::MemoryFormat::ChannelsLast);
  for (const at::Tensor& piece : run(x)) {
    EXPECT_TRUE(piece.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_FALSE(piece.is_contiguous());
  }
}

TEST_P(AutogradScatterTest, InputsThatNeedNoGradAndNoGradModeRecordNothing) {
  for (const at::Tensor& piece : run(on_home(random_tensor({8}, 1)))) {
    EXPECT_FALSE(piece.requires_grad());
  }
  const at::NoGradGuard no_grad;
  for (const at::Tensor& piece : run(leaf({8}, 1))) {
    EXPECT_FALSE(piece.requires_grad());
  }
}

TEST_P(AutogradScatterTest, InPlaceUseOfAPieceIsRecordedAndLeavesInputAndNeighboursAlone) {
  const at::Tensor x = leaf({8}, 1);
  const at::Tensor before = x.detach().clone();
  const auto pieces = run(x);
  at::Tensor total = on_home(at::zeros({}, at::kDouble));
  for (const at::Tensor& piece : pieces) {
    piece.add_(1).mul_(piece.detach().clone());  // d/dx (x + 1) * const = const
    total = total + piece.sum().to(devices()[0]);
  }
  total.backward();
  EXPECT_THAT(x.detach(), BitwiseEqual(before));
  EXPECT_THAT(x.grad(), BitwiseEqual(before + 1));
}

TEST_P(AutogradScatterTest, AModelThatStartsInPlaceTrainsOnEveryPiece) {
  const at::Tensor batch = on_home(random_tensor({8, 2}, 1));
  const at::Tensor before = batch.clone();
  const at::Tensor weight = leaf({2, 3}, 2);
  at::Tensor total = on_home(at::zeros({}, at::kDouble));
  for (const at::Tensor& piece : run(batch)) {
    total = total + piece.relu_().matmul(weight.to(piece.device())).sum().to(devices()[0]);
  }
  total.backward();
  EXPECT_THAT(batch, BitwiseEqual(before));
  const at::Tensor serial = before.relu().sum(0, /*keepdim=*/true).t().expand({2, 3});
  EXPECT_THAT(weight.grad(), lockstep::testing::AllClose(serial));
}

TEST_P(AutogradScatterTest, AWriteToTheBatchAfterForwardDoesNotReachGradients) {
  const at::Tensor batch = on_home(random_tensor({8}, 1));
  const at::Tensor before = batch.clone();
  const at::Tensor weight = leaf({}, 2);
  at::Tensor total = on_home(at::zeros({}, at::kDouble));
  for (const at::Tensor& piece : run(batch)) {
    total = total + (piece * weight.to(piece.device())).sum().to(devices()[0]);
  }
  batch.zero_();
  total.backward();
  EXPECT_THAT(weight.grad(), lockstep::testing::AllClose(before.sum()));
}

TEST_P(AutogradScatterTest, RunsBackwardTwiceOnAKeptGraph) {
  const at::Tensor x = leaf({8}, 1);
  const at::Tensor loss = run(x)[0].pow(2).sum();
  const auto first = torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true);
  const auto second = torch::autograd::grad({loss}, {x});
  EXPECT_THAT(second[0], BitwiseEqual(first[0]));
}

TEST(ScatterErrorsTest, PassesOnTheErrorsOfComm) {
  const std::vector<c10::Device> two(2, c10::Device(at::kCPU));
  EXPECT_THAT([&] { autograd_fns::scatter(at::ones({}), two); }, ThrowsError("[scatter] expected"));
  EXPECT_THAT([&] { autograd_fns::scatter(at::ones({2}), {}); }, ThrowsError("[scatter]"));
  comm::ScatterOptions wrong;
  wrong.chunk_sizes = std::vector<int64_t>{1, 2};
  EXPECT_THAT([&] { autograd_fns::scatter(at::ones({2}), two, wrong); },
              ThrowsError("[scatter] expected chunk_sizes that sum to 2"));
}

}  // namespace
}  // namespace lockstep::autograd_fns
