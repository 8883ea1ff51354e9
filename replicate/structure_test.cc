// SPDX-License-Identifier: Apache-2.0
#include "replicate/structure.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>

#include "replicate/replicatable.h"
#include "replicate/test_modules.h"

namespace lockstep::replicate::internal {
namespace {

struct WithExtra : torch::nn::Module, Replicatable {
  std::shared_ptr<torch::nn::Module> make_replica() const override {
    return std::make_shared<WithExtra>();
  }
  void visit_extra_tensors(const TensorVisitor& visit) override { visit("extra", extra); }
  at::Tensor extra = at::ones({2});
};

// Two children of one size, so that one may come to lie where the other was.
struct First : torch::nn::Module {};
struct Second : torch::nn::Module {};

TEST(StructureTest, MatchesWhatItWasMadeOf) {
  TiedImpl module;
  EXPECT_TRUE(Structure(module).matches(module));
}

TEST(StructureTest, AnEmptyOneMatchesNothing) {
  torch::nn::Module module;
  EXPECT_FALSE(Structure().matches(module));
}

TEST(StructureTest, IgnoresChangesInPlace) {
  AffineImpl module(2);
  const Structure structure(module);
  {
    const at::NoGradGuard no_grad;
    module.weight.add_(1);
    module.shift.add_(1);
  }
  module.weight.set_requires_grad(false);
  module.eval();
  module.to(at::kFloat);
  module.weight.set_data(at::ones({7}));
  EXPECT_TRUE(structure.matches(module));
}

TEST(StructureTest, NoticesAddedParametersBuffersAndChildren) {
  AffineImpl module(2);
  const Structure first(module);
  module.register_parameter("more", at::ones({1}));
  EXPECT_FALSE(first.matches(module));
  const Structure second(module);
  module.register_buffer("more_still", at::ones({1}));
  EXPECT_FALSE(second.matches(module));
  const Structure third(module);
  module.register_module("child", std::make_shared<First>());
  EXPECT_FALSE(third.matches(module));
}

TEST(StructureTest, NoticesChangesDeepInTheTree) {
  torch::nn::ModuleList outer(torch::nn::ModuleList(torch::nn::Linear(2, 2)),
                              torch::nn::Linear(1, 1));
  const Structure structure(*outer);
  outer->children()[0]->children()[0]->register_buffer("late", at::ones({1}));
  EXPECT_FALSE(structure.matches(*outer));
}

TEST(StructureTest, NoticesAReplacedChild) {
  torch::nn::Module module;
  module.register_module("child", std::make_shared<First>());
  const Structure structure(module);
  module.replace_module("child", std::make_shared<First>());
  EXPECT_FALSE(structure.matches(module));
}

TEST(StructureTest, ANewChildWhereARemovedOneWasIsNoMatch) {
  torch::nn::Module module;
  module.register_module("child", std::make_shared<First>());
  const Structure structure(module);
  module.unregister_module("child");
  EXPECT_FALSE(structure.matches(module));
  module.register_module("child", std::make_shared<Second>());
  EXPECT_FALSE(structure.matches(module));
}

TEST(StructureTest, NoticesReplacedExtraTensors) {
  WithExtra module;
  const Structure structure(module);
  module.extra.add_(1);
  EXPECT_TRUE(structure.matches(module));
  module.extra = at::zeros({2});
  EXPECT_FALSE(structure.matches(module));
}

}  // namespace
}  // namespace lockstep::replicate::internal
