// SPDX-License-Identifier: Apache-2.0
#include "replicate/twin.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "replicate/replicatable.h"
#include "replicate/test_modules.h"
#include "testing/matchers.h"

namespace lockstep::replicate::internal {
namespace {

using lockstep::testing::BitwiseEqual;
using lockstep::testing::ThrowsError;
using torch::nn::Module;

const c10::Device kCpu(c10::kCPU);

// Registers all in the constructor, so that clone() finds nothing after reset().
struct EmptyResetImpl : torch::nn::Cloneable<EmptyResetImpl> {
  EmptyResetImpl() {
    register_parameter("w", at::ones({2}));
    register_buffer("statistics", at::ones({2}));
    register_module("fc", torch::nn::Linear(2, 2));
  }
  void reset() override {}
  at::Tensor forward(const at::Tensor& x) { return x; }
};

// reset() makes the plain child, so nothing need copy it.
struct PlainChildImpl : torch::nn::Cloneable<PlainChildImpl> {
  PlainChildImpl() { reset(); }
  void reset() override { register_module("plain", std::make_shared<PlainImpl>()); }
};

// reset() registers the tensor it was copied with, not a new one.
struct KeepsTensorImpl : torch::nn::Cloneable<KeepsTensorImpl> {
  KeepsTensorImpl() { reset(); }
  void reset() override { register_parameter("w", w); }
  at::Tensor w = at::ones({2});
};

struct Chosen : PlainImpl, Replicatable {
  std::shared_ptr<Module> make_replica() const override { return twin; }
  std::shared_ptr<Module> twin = std::make_shared<PlainImpl>();
};

Pairs pairs_of(const std::shared_ptr<Module>& a, const std::shared_ptr<Module>& b) {
  return pair_with_twin(a, b, kCpu, {});
}

TEST(TwinTest, ClonesACloneableModuleWithoutWritingToIt) {
  const auto original = std::make_shared<AffineImpl>(3);
  const at::Tensor weight = original->weight.detach().clone();
  const auto twin = std::dynamic_pointer_cast<AffineImpl>(make_twin(original, kCpu, {}));
  ASSERT_NE(twin, nullptr);
  EXPECT_FALSE(twin->weight.is_alias_of(original->weight));
  EXPECT_THAT(original->weight.detach(), BitwiseEqual(weight));
}

TEST(TwinTest, AFactoryComesBeforeReplicatableAndThatBeforeClone) {
  const auto original = std::make_shared<Chosen>();
  EXPECT_EQ(make_twin(original, kCpu, {}), original->twin);
  ReplicateOptions options;
  const auto made = std::make_shared<PlainImpl>();
  options.factory = [&] { return made; };
  EXPECT_EQ(make_twin(original, kCpu, options), made);
}

TEST(TwinTest, APlainModuleIsRefusedWithItsTypeAndTheThreeWaysOut) {
  const auto make = [] { make_twin(std::make_shared<PlainImpl>(), kCpu, {}); };
  EXPECT_THAT(make, ThrowsError("its type lockstep::replicate::PlainImpl has no clone()"));
  EXPECT_THAT(make, ThrowsError("cannot copy the module"));
  EXPECT_THAT(make, ThrowsError("torch::nn::Cloneable<lockstep::replicate::PlainImpl>"));
  EXPECT_THAT(make, ThrowsError("lockstep::replicate::Replicatable"));
  EXPECT_THAT(make, ThrowsError("ReplicateOptions::factory"));
}

TEST(TwinTest, ASubmoduleIsNamedByItsPath) {
  torch::nn::Sequential inner({{"fc", torch::nn::Linear(1, 1)}, {"plain", PlainImpl()}});
  torch::nn::ModuleList outer(torch::nn::Linear(1, 1), inner);
  EXPECT_THAT([&] { make_twin(outer.ptr(), kCpu, {}); },
              ThrowsError("cannot copy the submodule '1.plain'"));
  torch::nn::Sequential poor({{"net", EmptyResetImpl()}});
  EXPECT_THAT([&] { make_twin(poor.ptr(), kCpu, {}); },
              ThrowsError("cannot copy the submodule 'net' of type"));
}

TEST(TwinTest, AResetThatRegistersTooLittleIsToldTheNames) {
  const auto make = [] { make_twin(std::make_shared<EmptyResetImpl>(), kCpu, {}); };
  EXPECT_THAT(make, ThrowsError("reset() does not register all"));
  EXPECT_THAT(make, ThrowsError("(w, statistics, fc)"));
  EXPECT_THAT(make, ThrowsError("must be registered in reset()"));
}

TEST(TwinTest, APlainChildThatResetMakesIsFine) {
  const auto original = std::make_shared<PlainChildImpl>();
  const auto twin = make_twin(original, kCpu, {});
  EXPECT_EQ(pairs_of(original, twin).tensors.size(), 1);
}

TEST(TwinTest, APlainChildThatDoesNoHarmIsNotBlamed) {
  const auto original = std::make_shared<PlainChildImpl>();
  original->register_parameter("late", at::ones({1}));
  EXPECT_THAT([&] { make_twin(original, kCpu, {}); }, ThrowsError("(late, plain)"));
}

TEST(TwinTest, AChildOfAnotherTypeThanResetMakesIsAnError) {
  const auto original = std::make_shared<TiedImpl>();
  original->replace_module("left", torch::nn::Linear(2, 2));
  EXPECT_THAT([&] { make_twin(original, kCpu, {}); }, ThrowsError("different type"));
}

TEST(TwinTest, NullTwinsAreRefused) {
  const auto original = std::make_shared<Chosen>();
  original->twin = nullptr;
  EXPECT_THAT([&] { make_twin(original, kCpu, {}); }, ThrowsError("make_replica() of"));
  ReplicateOptions options;
  options.factory = [] { return nullptr; };
  EXPECT_THAT([&] { make_twin(original, kCpu, options); }, ThrowsError("factory returned null"));
}

TEST(PairWithTwinTest, PairsByNameWhateverTheOrder) {
  const auto a = std::make_shared<Module>();
  const at::Tensor ax = a->register_parameter("x", at::ones({1}));
  const at::Tensor ay = a->register_buffer("y", at::ones({1}));
  a->register_buffer("z", at::ones({1}));
  const auto b = std::make_shared<Module>();
  b->register_buffer("z", at::ones({1}));
  const at::Tensor by = b->register_buffer("y", at::ones({1}));
  const at::Tensor bx = b->register_parameter("x", at::ones({1}));
  const Pairs pairs = pairs_of(a, b);
  ASSERT_EQ(pairs.tensors.size(), 3);
  EXPECT_EQ(pairs.tensors[0].name, "x");
  EXPECT_TRUE(pairs.tensors[0].is_parameter);
  EXPECT_TRUE(pairs.tensors[0].original.is_same(ax));
  EXPECT_TRUE(pairs.tensors[0].twin.is_same(bx));
  EXPECT_EQ(pairs.tensors[1].name, "y");
  EXPECT_FALSE(pairs.tensors[1].is_parameter);
  EXPECT_TRUE(pairs.tensors[1].original.is_same(ay));
  EXPECT_TRUE(pairs.tensors[1].twin.is_same(by));
}

TEST(PairWithTwinTest, PairsByOrderWhereTheNamesDiffer) {
  // Sequential's own clone() numbers its children anew.
  torch::nn::Sequential original(
      {{"first", torch::nn::Linear(2, 3)}, {"second", torch::nn::Linear(3, 1)}});
  const auto twin = make_twin(original.ptr(), kCpu, {});
  const Pairs pairs = pairs_of(original.ptr(), twin);
  ASSERT_EQ(pairs.tensors.size(), 4);
  for (const TensorPair& pair : pairs.tensors) {
    EXPECT_EQ(pair.original.sizes(), pair.twin.sizes()) << pair.name;
  }
  EXPECT_EQ(pairs.tensors[2].name, "second.weight");
  ASSERT_EQ(pairs.modules.size(), 3);
  EXPECT_EQ(pairs.modules[0].original, original.get());
  EXPECT_EQ(pairs.modules[0].twin, twin.get());
}

TEST(PairWithTwinTest, LeavesOutUndefinedTensors) {
  torch::nn::Linear original(torch::nn::LinearOptions(3, 2).bias(false));
  const Pairs pairs = pairs_of(original.ptr(), make_twin(original.ptr(), kCpu, {}));
  ASSERT_EQ(pairs.tensors.size(), 1);
  EXPECT_EQ(pairs.tensors[0].name, "weight");
}

TEST(PairWithTwinTest, ATensorWithTwoNamesComesOncePerName) {
  const auto original = std::make_shared<TiedImpl>();
  const Pairs pairs = pairs_of(original, make_twin(original, kCpu, {}));
  EXPECT_EQ(pairs.tensors.size(), 2 + 2 * 2);
}

TEST(PairWithTwinTest, DifferingTreesAreRefusedWithBothListsOfNames) {
  const auto plain = std::make_shared<PlainImpl>();
  const auto bare = std::make_shared<Module>();
  EXPECT_THAT([&] { pairs_of(plain, bare); },
              ThrowsError("in its parameters: expected (weight), got ()"));
  const auto buffered = std::make_shared<Module>();
  buffered->register_buffer("b", at::ones({1}));
  EXPECT_THAT([&] { pairs_of(bare, buffered); },
              ThrowsError("in its buffers: expected (), got (b)"));
  const auto parent = std::make_shared<Module>();
  parent->register_module("child", std::make_shared<Module>());
  EXPECT_THAT([&] { pairs_of(parent, bare); },
              ThrowsError("in its child modules: expected (child), got ()"));
}

TEST(PairWithTwinTest, ATwinThatIsTheOriginalIsRefused) {
  const auto plain = std::make_shared<PlainImpl>();
  EXPECT_THAT([&] { pairs_of(plain, plain); }, ThrowsError("is the original itself"));
}

TEST(PairWithTwinTest, ATwinThatHoldsTheOriginalsTensorIsRefusedByName) {
  const auto original = std::make_shared<KeepsTensorImpl>();
  const auto twin = make_twin(original, kCpu, {});
  EXPECT_THAT([&] { pairs_of(original, twin); },
              ThrowsError("the copy holds the original's own tensor 'w'"));
}

TEST(PairWithTwinTest, ATwinThatTiesWhatTheOriginalDoesNotIsRefused) {
  const auto original = std::make_shared<Module>();
  original->register_parameter("a", at::ones({2}));
  original->register_parameter("b", at::ones({2}));
  const auto twin = std::make_shared<Module>();
  const at::Tensor both = at::ones({2});
  twin->register_parameter("a", both);
  twin->register_parameter("b", both);
  EXPECT_THAT([&] { pairs_of(original, twin); },
              ThrowsError("the copy has one tensor for 'a' and 'b', which are two"));
  EXPECT_EQ(pairs_of(twin, original).tensors.size(), 2) << "the other way is a matter of handles";
}

TEST(PairWithTwinTest, ATwinOfAnotherLayoutIsRefused) {
  const auto original = std::make_shared<Module>();
  original->register_buffer("mask", at::ones({2}).to_sparse());
  const auto twin = std::make_shared<Module>();
  twin->register_buffer("mask", at::ones({2}));
  EXPECT_THAT([&] { pairs_of(original, twin); },
              ThrowsError("the copy's 'mask' is Strided, but the original's Sparse"));
}

}  // namespace
}  // namespace lockstep::replicate::internal
