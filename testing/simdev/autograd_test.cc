// SPDX-License-Identifier: Apache-2.0
// Autograd, autocast and inference mode on the devices.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn.h>

#include "testing/matchers.h"
#include "testing/random.h"
#include "testing/simdev/simdev.h"
#include "testing/simdev/test_environment.h"

namespace lockstep::simdev {
namespace {

using lockstep::testing::AllClose;
using lockstep::testing::BitwiseEqual;
using lockstep::testing::random_tensor;
using lockstep::testing::ThrowsError;

const bool kDevicesInUse = use_in_tests();

at::TensorOptions on(int index) { return at::TensorOptions(device(index)); }

TEST(AutogradTest, GoesAcrossDevicesAndTheHost) {
  const at::Tensor x = at::ones({3}).requires_grad_(true);
  const at::Tensor w = at::full({3}, 3.0F, on(2)).requires_grad_(true);
  const at::Tensor y = ((x * 2).to(device(1)) * 5).to(device(2)) * w;
  y.sum().to(at::kCPU).backward();
  EXPECT_THAT(x.grad(), BitwiseEqual(at::full({3}, 30.0F)));
  EXPECT_EQ(w.grad().device(), device(2));
  EXPECT_THAT(w.grad(), BitwiseEqual(at::full({3}, 10.0F)));
}

TEST(AutogradTest, CountsVersionsOfInPlaceChanges) {
  at::Tensor t = at::ones({3}, on(1));
  const auto version = t._version();
  t.add_(1).mul_(3).clamp_(0, 5);
  EXPECT_EQ(t._version(), version + 3);
}

TEST(AutogradTest, RefusesASavedTensorThatWasChanged) {
  const at::Tensor x = at::ones({3}, on(1)).requires_grad_(true);
  at::Tensor y = x * 2;
  const at::Tensor z = (y * y).sum();
  y.add_(1);
  EXPECT_THAT([&] { z.backward(); }, ThrowsError("modified by an inplace operation"));
}

struct Square : torch::autograd::Function<Square> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x * x;
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    return {gradients[0] * 2 * context->get_saved_variables()[0]};
  }
};

TEST(AutogradTest, RunsFunctionsOfTheUser) {
  const at::Tensor x = at::full({2}, 3.0F, on(1)).requires_grad_(true);
  Square::apply(x).sum().backward();
  EXPECT_THAT(x.grad(), BitwiseEqual(at::full({2}, 6.0F)));
}

TEST(AutogradTest, GivesSparseGradientsThatAddUp) {
  torch::nn::Embedding table(torch::nn::EmbeddingOptions(10, 4).sparse(true));
  table->to(device(1));
  const at::Tensor index = at::arange(3, on(1));
  table(index).sum().backward();
  table(index).sum().backward();
  EXPECT_TRUE(table->weight.grad().is_sparse());
  EXPECT_EQ(table->weight.grad().device(), device(1));
  EXPECT_THAT(table->weight.grad().to_dense().sum(), BitwiseEqual(at::scalar_tensor(24.0F)));
}

TEST(InferenceModeTest, RunsLayers) {
  torch::nn::Linear linear(3, 2);
  const at::Tensor x = random_tensor({4, 3}, 1, at::kFloat);
  const at::Tensor expected = linear(x).detach();
  linear->to(device(1));
  const c10::InferenceMode mode;
  const at::Tensor y = linear(x.to(device(1)));
  EXPECT_TRUE(y.is_inference());
  EXPECT_THAT(y, BitwiseEqual(expected));
}

class AutocastTest : public ::testing::Test {
 protected:
  void SetUp() override { enable(device(0).type(), true); }
  void TearDown() override {
    enable(device(0).type(), false);
    enable(at::kCPU, false);
    at::autocast::clear_cache();
  }
  static void enable(c10::DeviceType type, bool on) {
    at::autocast::set_autocast_enabled(type, on);
    at::autocast::set_autocast_dtype(type, at::kBFloat16);
  }
};

TEST_F(AutocastTest, LowersProductsAndKeepsSumsInFloat) {
  const at::Tensor x = at::ones({2, 2}, on(1));
  EXPECT_EQ(x.mm(x).scalar_type(), at::kBFloat16);
  EXPECT_EQ(at::conv1d(at::ones({1, 1, 4}, on(1)), at::ones({1, 1, 2}, on(1))).scalar_type(),
            at::kBFloat16);
  EXPECT_EQ(x.mm(x).exp().scalar_type(), at::kFloat);
  EXPECT_EQ(at::cat({x, x.mm(x)}).scalar_type(), at::kFloat);
  EXPECT_EQ((x + x).scalar_type(), at::kFloat);
}

TEST_F(AutocastTest, TrainsALayer) {
  torch::nn::Linear linear(3, 2);
  linear->to(device(1));
  const at::Tensor y = linear(at::ones({4, 3}, on(1)));
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  y.sum().backward();
  EXPECT_EQ(linear->weight.grad().scalar_type(), at::kFloat);
  EXPECT_THAT(linear->weight.grad(), AllClose(at::full({2, 3}, 4.0F)));
}

TEST_F(AutocastTest, OfTheHostDoesNotReachIntoKernels) {
  enable(device(0).type(), false);
  const at::Tensor points = at::arange(48, at::kFloat).view({12, 4}) / 7;
  const at::Tensor distances = at::_cdist_forward(points, points, 2, /*compute_mode=*/1);
  enable(at::kCPU, true);
  const at::Tensor x = at::ones({2, 2}, on(1));
  // A kernel that multiplies matrices by calling operators.
  const at::Tensor there = points.to(device(1));
  EXPECT_THAT(at::_cdist_forward(there, there, 2, /*compute_mode=*/1), AllClose(distances));
  EXPECT_EQ(x.mm(x).scalar_type(), at::kFloat);
  EXPECT_EQ(at::conv1d(at::ones({1, 1, 4}, on(1)), at::ones({1, 1, 2}, on(1))).scalar_type(),
            at::kFloat);
}

TEST_F(AutocastTest, RefusesBinaryCrossEntropy) {
  const at::Tensor p = at::full({3}, 0.5, on(1));
  EXPECT_THAT([&] { at::binary_cross_entropy(p, p); },
              ThrowsError("[binary_cross_entropy] expected binary_cross_entropy_with_logits"));
}

}  // namespace
}  // namespace lockstep::simdev
