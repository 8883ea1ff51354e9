// SPDX-License-Identifier: Apache-2.0
// Modules whose layers nobody registered: they cannot be replicated, and the user is told.
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <vector>

#include "replicate/replicas_fixture.h"
#include "replicate/replicatable.h"
#include "replicate/replicate.h"
#include "replicate/test_modules.h"
#include "testing/device_sets.h"
#include "testing/warnings.h"

namespace lockstep::replicate {
namespace {

using lockstep::testing::BitwiseEqual;
using lockstep::testing::Warnings;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct PlainVectorImpl : torch::nn::Cloneable<PlainVectorImpl> {
  PlainVectorImpl() { reset(); }
  void reset() override { layers = {torch::nn::Linear(2, 2)}; }
  at::Tensor forward(const at::Tensor& x) { return layers[0](x); }
  std::vector<torch::nn::Linear> layers;
};

struct ListedImpl : torch::nn::Cloneable<ListedImpl> {
  ListedImpl() { reset(); }
  void reset() override {
    layers = register_module("layers", torch::nn::ModuleList(torch::nn::Linear(2, 2)));
  }
  at::Tensor forward(const at::Tensor& x) { return layers[0]->as<torch::nn::Linear>()->forward(x); }
  torch::nn::ModuleList layers{nullptr};
};

struct NothingImpl : torch::nn::Module, Replicatable {
  std::shared_ptr<torch::nn::Module> make_replica() const override {
    return std::make_shared<NothingImpl>();
  }
};

class UnregisteredTest : public ReplicasTest {};
LOCKSTEP_INSTANTIATE_DEVICE_SETS(UnregisteredTest);

// allenai/allennlp#2780
TEST_P(UnregisteredTest, AModuleThatRegistersNothingGetsAWarningWithTheRemedy) {
  Warnings warnings;
  replicate(std::make_shared<PlainVectorImpl>(), devices(), options());
  EXPECT_THAT(warnings.messages,
              ElementsAre(AllOf(
                  HasSubstr("nothing is registered in the module of type lockstep::replicate::"),
                  HasSubstr("PlainVectorImpl"), HasSubstr("ModuleList"))));
}

TEST_P(UnregisteredTest, TheSameLayersInAModuleListTrainWithoutAWarning) {
  Warnings warnings;
  const auto net = placed(std::make_shared<ListedImpl>());
  for (const auto& replica : replicate(net, devices(), options())) {
    replica->forward(beside(*replica, at::ones({1, 2}))).sum().backward();
  }
  EXPECT_THAT(net->parameters()[0].grad().cpu(),
              BitwiseEqual(at::ones({2, 2}) * static_cast<double>(k())));
  EXPECT_THAT(warnings.messages, IsEmpty());
}

TEST_P(UnregisteredTest, LayersWithoutTensorsAndReplicatablesGetNoWarning) {
  Warnings warnings;
  replicate(torch::nn::Dropout(0.5), devices(), options());
  replicate(std::make_shared<NothingImpl>(), devices(), options());
  EXPECT_THAT(warnings.messages, IsEmpty());
}

}  // namespace
}  // namespace lockstep::replicate
