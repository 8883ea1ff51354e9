// SPDX-License-Identifier: Apache-2.0
// ReplicaSet when the module itself changes between steps: other storage, types, tensors, children.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "replicate/replica_set.h"
#include "replicate/test_modules.h"
#include "testing/device_sets.h"
#include "testing/matchers.h"
#include "testing/random.h"

namespace lockstep::replicate {
namespace {

using lockstep::testing::AllClose;
using lockstep::testing::BitwiseEqual;
using lockstep::testing::random_tensor;
using lockstep::testing::ThrowsError;

using Set = ReplicaSet<AffineImpl>;

// Two parameters and a sparse buffer.
struct PairImpl : torch::nn::Cloneable<PairImpl> {
  PairImpl() { reset(); }
  void reset() override {
    left = register_parameter("left", at::ones({2}, at::kDouble));
    right = register_parameter("right", at::ones({2}, at::kDouble));
    mask = register_buffer("mask", at::ones({2}, at::kDouble).to_sparse());
  }
  at::Tensor left;
  at::Tensor right;
  at::Tensor mask;
};

// Its reset() makes what `extended` says, which a change may follow.
struct GrowingImpl : torch::nn::Cloneable<GrowingImpl> {
  GrowingImpl() { reset(); }
  void reset() override {
    weight = register_parameter("weight", at::ones({2}, at::kDouble));
    if (extended) {
      more = register_parameter("more", at::ones({2}, at::kDouble));
      child = register_module("child", std::make_shared<AffineImpl>(2));
    }
  }
  at::Tensor forward(const at::Tensor& x) const {
    return extended ? child->forward(x * weight + more) : x * weight;
  }
  bool extended = false;
  at::Tensor weight;
  at::Tensor more;
  std::shared_ptr<AffineImpl> child;
};

class ReplicaSetChangesTest : public ::testing::TestWithParam<lockstep::testing::DeviceSet> {
 protected:
  const std::vector<c10::Device>& devices() const { return GetParam().devices; }
  ReplicateOptions options(bool share_parameters) const {
    ReplicateOptions options;
    options.share_parameters = share_parameters;
    options.collectives = GetParam().collectives;
    return options;
  }

  // Expects replicas that equal the module and send their gradients to it.
  template <class M>
  void expect_in_line(const ReplicaSet<M>& set, const at::Tensor& x) const {
    const auto module = set.module();
    module->zero_grad();
    module->forward(x).sum().backward();
    const auto alone = take_gradients(*module);
    for (const auto& replica : set.replicas()) {
      EXPECT_THAT(replica->forward(x).detach(), BitwiseEqual(module->forward(x).detach()));
      replica->forward(x).sum().backward();
    }
    const auto together = take_gradients(*module);
    for (size_t p = 0; p < alone.size(); ++p) {
      EXPECT_THAT(together[p],
                  AllClose(alone[p] * static_cast<double>(devices().size()), {1e-5, 1e-5}));
    }
  }

  const std::shared_ptr<AffineImpl> net_ = std::make_shared<AffineImpl>(3);
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS(ReplicaSetChangesTest);

TEST_P(ReplicaSetChangesTest, FollowsSetDataWithoutMakingReplicasAnew) {
  for (const bool share : {true, false}) {
    Set set(net_, devices(), options(share));
    const auto before = set.replicas();
    net_->weight.set_data(random_tensor({3}, 2));
    net_->shift.set_data(random_tensor({3}, 3));
    set.synchronize();
    expect_in_line(set, random_tensor({4, 3}, 4));
    net_->weight.set_data(random_tensor({2, 3}, 5));
    set.synchronize();
    expect_in_line(set, random_tensor({2, 3}, 4));
    EXPECT_EQ(set.replicas(), before);
    const at::NoGradGuard no_grad;
    net_->weight.add_(1);
    set.synchronize();
    EXPECT_THAT(set.replicas().back()->weight.detach(), BitwiseEqual(net_->weight.detach()));
    net_->weight.set_data(random_tensor({3}, 2));
  }
}

TEST_P(ReplicaSetChangesTest, FollowsAChangeOfDtype) {
  for (const bool share : {true, false}) {
    Set set(net_, devices(), options(share));
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      net_->to(dtype);
      set.synchronize();
      for (const auto& replica : set.replicas()) {
        EXPECT_EQ(replica->weight.scalar_type(), dtype);
      }
      expect_in_line(set, random_tensor({4, 3}, 4, dtype));
    }
  }
}

TEST_P(ReplicaSetChangesTest, MakesReplicasAnewWhenTensorsAndChildrenAreAdded) {
  for (const bool share : {true, false}) {
    const auto net = std::make_shared<GrowingImpl>();
    ReplicaSet<GrowingImpl> set(net, devices(), options(share));
    net->extended = true;
    net->more = net->register_parameter("more", at::ones({2}, at::kDouble) * 3);
    net->child = net->register_module("child", std::make_shared<AffineImpl>(2));
    const at::Tensor generator = generator_state();
    set.synchronize();
    EXPECT_THAT(generator_state(), BitwiseEqual(generator));
    expect_in_line(set, random_tensor({4, 2}, 4));
  }
}

TEST_P(ReplicaSetChangesTest, FollowsAReplacedChild) {
  torch::nn::Sequential net(torch::nn::Linear(2, 3), torch::nn::Linear(3, 1));
  ReplicaSet<torch::nn::SequentialImpl> set(net, devices());
  net->push_back(torch::nn::Linear(1, 2));
  set.synchronize();
  expect_in_line(set, random_tensor({4, 2}, 4, at::kFloat));

  const auto growing = std::make_shared<GrowingImpl>();
  growing->extended = true;
  growing->more = growing->register_parameter("more", at::ones({2}, at::kDouble));
  growing->child = growing->register_module("child", std::make_shared<AffineImpl>(2));
  ReplicaSet<GrowingImpl> growing_set(growing, devices());
  growing->child = growing->replace_module("child", std::make_shared<AffineImpl>(2));
  growing_set.synchronize();
  expect_in_line(growing_set, random_tensor({4, 2}, 4));
}

TEST_P(ReplicaSetChangesTest, FollowsAReplacedParameter) {
  for (const bool share : {true, false}) {
    Set set(net_, devices(), options(share));
    net_->replace_weight(random_tensor({3}, 6).requires_grad_());
    set.synchronize();
    expect_in_line(set, random_tensor({4, 3}, 4));
  }
}

TEST_P(ReplicaSetChangesTest, AnUpdateBesideANewStorageStillEndsOldGraphs) {
  for (size_t r = 0; r < devices().size(); ++r) {
    const auto net = std::make_shared<PairImpl>();
    ReplicaSet<PairImpl> set(net, devices(), options(false));
    const at::Tensor x = random_tensor({2}, 1).requires_grad_();
    const at::Tensor loss = (set.replicas()[r]->left * x).sum();
    {
      const at::NoGradGuard no_grad;
      net->left.add_(1);
    }
    net->right.set_data(at::zeros({2}, at::kDouble));
    set.synchronize();
    EXPECT_THAT([&] { loss.backward(); }, ThrowsError("modified by an inplace operation"))
        << "replica " << r;
  }
}

TEST_P(ReplicaSetChangesTest, AGraphOfCopiesEndsWithTheirStorage) {
  Set set(net_, devices(), options(/*share_parameters=*/false));
  {
    const at::NoGradGuard no_grad;
    net_->weight.add_(1);
  }
  set.synchronize();
  const at::Tensor x = random_tensor({4, 3}, 1).requires_grad_();
  const at::Tensor loss = set.replicas().back()->forward(x).sum();
  net_->weight.set_data(random_tensor({3}, 2));
  {
    const at::NoGradGuard no_grad;
    net_->weight.add_(1);
  }
  set.synchronize();
  if (set.replicas().size() > 1) {
    EXPECT_THAT([&] { loss.backward(); }, ThrowsError("modified by an inplace operation"));
  }
}

TEST_P(ReplicaSetChangesTest, AnotherShapeGetsAnAccumulatorOfItsOwn) {
  const auto old_accumulator = torch::autograd::impl::gradient_edge(net_->weight).function;
  Set set(net_, devices());
  net_->weight.set_data(random_tensor({2, 3}, 5));
  set.synchronize();
  expect_in_line(set, random_tensor({2, 3}, 4));
}

TEST_P(ReplicaSetChangesTest, AConjugateIsSeen) {
  const auto net = std::make_shared<PairImpl>();
  ReplicaSet<PairImpl> set(net, devices());
  net->left.set_data(at::complex(random_tensor({2}, 1), random_tensor({2}, 2)));
  set.synchronize();
  net->left.set_data(net->left.detach().conj());
  set.synchronize();
  for (const auto& replica : set.replicas()) {
    EXPECT_TRUE(at::equal(replica->left.detach(), net->left.detach()));
  }
}

TEST_P(ReplicaSetChangesTest, AFailureHalfWayIsMadeGood) {
  const auto net = std::make_shared<PairImpl>();
  ReplicaSet<PairImpl> set(net, devices(), options(/*share_parameters=*/false));
  const at::Tensor left = net->left.detach(), right = net->right.detach();
  net->left.set_data(at::zeros({2}, at::kDouble));
  // No replica has memory for a copy of this one.
  net->right.set_data(at::zeros({1}, at::kDouble).expand({int64_t{1} << 45}));
  if (devices().size() > 1) {
    EXPECT_ANY_THROW(set.synchronize());
  }
  net->left.set_data(left);
  net->right.set_data(right);
  set.synchronize();
  for (const auto& replica : set.replicas()) {
    EXPECT_THAT(replica->left.detach(), BitwiseEqual(left));
  }
}

TEST_P(ReplicaSetChangesTest, SparseBuffersAreRefreshed) {
  const auto net = std::make_shared<PairImpl>();
  ReplicaSet<PairImpl> set(net, devices());
  net->mask.mul_(4);
  set.synchronize();
  for (const auto& replica : set.replicas()) {
    EXPECT_TRUE(replica->mask.is_sparse());
    EXPECT_THAT(replica->mask, BitwiseEqual(net->mask));
  }
}

TEST_P(ReplicaSetChangesTest, AMisplacedTensorIsNamedAndTheSetGoesOnWithoutIt) {
  for (const bool share : {true, false}) {
    Set set(net_, devices(), options(share));
    net_->replace_weight(at::zeros({3}, at::TensorOptions(at::kDouble).device(at::kMeta)));
    EXPECT_THAT([&] { set.synchronize(); },
                ThrowsError("[replicate] parameter 'weight' is on meta, but the first device of "
                            "the list is cpu"));
    net_->replace_weight(random_tensor({3}, 7).requires_grad_());
    set.synchronize();
    expect_in_line(set, random_tensor({4, 3}, 4));
  }
}

TEST_P(ReplicaSetChangesTest, AChildThatCannotBeCopiedIsNamedAndTheSetGoesOnWithoutIt) {
  Set set(net_, devices());
  net_->register_module("plain", std::make_shared<PlainImpl>());
  EXPECT_THAT([&] { set.synchronize(); }, ThrowsError("does not register all"));
  net_->unregister_module("plain");
  set.synchronize();
  expect_in_line(set, random_tensor({4, 3}, 4));
}

}  // namespace
}  // namespace lockstep::replicate
