// SPDX-License-Identifier: Apache-2.0
// That twins are made without a draw, whatever their initialisation does.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformer.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "replicate/replicatable.h"
#include "replicate/test_modules.h"
#include "replicate/twin.h"
#include "testing/matchers.h"

namespace lockstep::replicate::internal {
namespace {

using lockstep::testing::BitwiseEqual;
using torch::nn::Module;

const c10::Device kCpu(c10::kCPU);

class TwinDrawsTest : public ::testing::Test {
 protected:
  // A twin made by clone() has the values too.
  std::shared_ptr<Module> expect_equal_clone(const std::shared_ptr<Module>& original) {
    const at::Tensor before = generator_state();
    auto twin = make_twin(original, kCpu, {});
    EXPECT_THAT(generator_state(), BitwiseEqual(before));
    for (const TensorPair& pair : pair_with_twin(original, twin, kCpu, {}).tensors) {
      EXPECT_THAT(pair.twin, BitwiseEqual(pair.original)) << pair.name;
    }
    return twin;
  }
};

TEST_F(TwinDrawsTest, LayersAreClonedWithoutADraw) {
  expect_equal_clone(torch::nn::Linear(5, 4).ptr());
  expect_equal_clone(torch::nn::Conv2d(3, 4, 3).ptr());
  expect_equal_clone(torch::nn::BatchNorm2d(4).ptr());
  expect_equal_clone(torch::nn::Embedding(9, 4).ptr());
  expect_equal_clone(torch::nn::LSTM(4, 4).ptr());
  expect_equal_clone(
      torch::nn::Transformer(torch::nn::TransformerOptions(8, 2, 1, 1).dim_feedforward(8)).ptr());
}

// Initialises in many ways, some of which need the values.
struct CarefulImpl : torch::nn::Cloneable<CarefulImpl> {
  CarefulImpl() { reset(); }
  void reset() override {
    const at::NoGradGuard no_grad;
    namespace init = torch::nn::init;
    orthogonal = register_parameter("orthogonal", init::orthogonal_(at::empty({4, 4})));
    sparse = register_parameter("sparse", init::sparse_(at::empty({4, 4}), 0.5));
    kaiming = init::kaiming_normal_(register_parameter("kaiming", at::empty({4, 4})));
    truncated = register_parameter("truncated", at::ones({64}) * 9);
    do {
      truncated.normal_();
    } while (truncated.abs().max().item<float>() > 3);
    invertible = register_parameter("invertible", at::ones({4, 4}));
    inverse = register_buffer("inverse", invertible.normal_().inverse());
    noise = at::empty({8}).normal_();
  }

  at::Tensor orthogonal, sparse, kaiming, truncated, invertible, inverse;
  at::Tensor noise;  // in no registry
};

TEST_F(TwinDrawsTest, AnInitialisationThatComputesWithItsDrawsWorks) {
  const auto original = std::make_shared<CarefulImpl>();
  const auto one = std::dynamic_pointer_cast<CarefulImpl>(expect_equal_clone(original));
  const auto other = std::dynamic_pointer_cast<CarefulImpl>(expect_equal_clone(original));
  EXPECT_THAT(one->noise, BitwiseEqual(other->noise));
  EXPECT_GT(one->noise.std().item<float>(), 0.1);
}

// Its twins initialise themselves by a draw from the default generator.
struct DrawingImpl : Module, Replicatable {
  DrawingImpl() {
    weight = register_parameter("weight", at::randn({4}));
    fc = register_module("fc", torch::nn::Linear(4, 4));
  }
  std::shared_ptr<Module> make_replica() const override { return std::make_shared<DrawingImpl>(); }

  at::Tensor weight;
  torch::nn::Linear fc = nullptr;
};

TEST_F(TwinDrawsTest, MakeReplicaAndAFactoryMayDraw) {
  const auto original = std::make_shared<DrawingImpl>();
  const at::Tensor before = generator_state();
  EXPECT_NE(make_twin(original, kCpu, {}), nullptr);
  ReplicateOptions options;
  options.factory = [] { return std::make_shared<DrawingImpl>(); };
  EXPECT_NE(make_twin(original, kCpu, options), nullptr);
  EXPECT_THAT(generator_state(), BitwiseEqual(before));
}

TEST_F(TwinDrawsTest, AFactoryThatFailsForAnotherReasonIsCalledOnce) {
  int num_calls = 0;
  ReplicateOptions options;
  options.factory = [&]() -> std::shared_ptr<Module> {
    at::rand({3});
    throw std::runtime_error(std::to_string(++num_calls));
  };
  const auto original = std::make_shared<DrawingImpl>();
  EXPECT_THROW(make_twin(original, kCpu, options), std::runtime_error);
  EXPECT_EQ(num_calls, 1);
}

// Initialises the tensor that its copy constructor shares with the original.
struct SharingImpl : torch::nn::Cloneable<SharingImpl> {
  SharingImpl() { reset(); }
  void reset() override {
    const at::NoGradGuard no_grad;
    w = register_parameter("w", w);
    w.normal_();
  }
  at::Tensor w = at::ones({4});
};

TEST_F(TwinDrawsTest, TheOriginalKeepsItsValuesFromAResetThatSharesIts) {
  const auto original = std::make_shared<SharingImpl>();
  const at::Tensor values = original->w.detach().clone();
  make_twin(original, kCpu, {});
  EXPECT_THAT(original->w.detach(), BitwiseEqual(values));
}

}  // namespace
}  // namespace lockstep::replicate::internal
