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
#include "replicate/replicas_fixture.h"
#include "replicate/test_modules.h"
#include "testing/device_sets.h"
#include "testing/matchers.h"

namespace lockstep::replicate {
namespace {

using lockstep::testing::AllClose;
using lockstep::testing::BitwiseEqual;
using lockstep::testing::ThrowsError;

using Set = ReplicaSet<AffineImpl>;

// Two parameters and a sparse buffer, made on their device: LibTorch moves sparse tensors of a
// module only between types of device that it knows.
struct PairImpl : torch::nn::Cloneable<PairImpl> {
  explicit PairImpl(c10::Device device) : device(device) { reset(); }
  void reset() override {
    const at::Tensor ones = at::ones({2}, at::TensorOptions(at::kDouble).device(device));
    left = register_parameter("left", ones.clone());
    right = register_parameter("right", ones.clone());
    mask = register_buffer("mask", ones.to_sparse());
  }
  c10::Device device;
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

class ReplicaSetChangesTest : public ReplicasTest {
 protected:
  // Expects replicas that equal the module and send their gradients to it.
  template <class M>
  void expect_in_line(const ReplicaSet<M>& set, const at::Tensor& x) const {
    const auto module = set.module();
    module->zero_grad();
    module->forward(x).sum().backward();
    const auto alone = take_gradients(*module);
    for (const auto& replica : set.replicas()) {
      const at::Tensor here = beside(*replica, x);
      EXPECT_THAT(replica->forward(here).detach(), BitwiseEqual(module->forward(x).detach()));
      replica->forward(here).sum().backward();
    }
    const auto together = take_gradients(*module);
    for (size_t p = 0; p < alone.size(); ++p) {
      EXPECT_THAT(together[p], AllClose(alone[p] * static_cast<double>(k()), {1e-5, 1e-5}));
    }
  }

  at::Tensor ones() const { return at::ones({2}, at::TensorOptions(at::kDouble).device(first())); }

  const std::shared_ptr<AffineImpl> net_ = placed(std::make_shared<AffineImpl>(3));
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS(ReplicaSetChangesTest);

TEST_P(ReplicaSetChangesTest, FollowsSetDataWithoutMakingReplicasAnew) {
  for (const bool share : {true, false}) {
    Set set(net_, devices(), options(share));
    const auto before = set.replicas();
    net_->weight.set_data(data({3}, 2));
    net_->shift.set_data(data({3}, 3));
    set.synchronize();
    expect_in_line(set, data({4, 3}, 4));
    net_->weight.set_data(data({2, 3}, 5));
    set.synchronize();
    expect_in_line(set, data({2, 3}, 4));
    EXPECT_EQ(set.replicas(), before);
    const at::NoGradGuard no_grad;
    net_->weight.add_(1);
    set.synchronize();
    EXPECT_THAT(set.replicas().back()->weight.detach(), BitwiseEqual(net_->weight.detach()));
    net_->weight.set_data(data({3}, 2));
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
      expect_in_line(set, data({4, 3}, 4, dtype));
    }
  }
}

TEST_P(ReplicaSetChangesTest, MakesReplicasAnewWhenTensorsAndChildrenAreAdded) {
  for (const bool share : {true, false}) {
    const auto net = placed(std::make_shared<GrowingImpl>());
    ReplicaSet<GrowingImpl> set(net, devices(), options(share));
    net->extended = true;
    net->more = net->register_parameter("more", ones() * 3);
    net->child = net->register_module("child", placed(std::make_shared<AffineImpl>(2)));
    const at::Tensor generator = generator_state();
    set.synchronize();
    EXPECT_THAT(generator_state(), BitwiseEqual(generator));
    expect_in_line(set, data({4, 2}, 4));
  }
}

TEST_P(ReplicaSetChangesTest, FollowsAReplacedChild) {
  auto net = placed(torch::nn::Sequential(torch::nn::Linear(2, 3), torch::nn::Linear(3, 1)));
  ReplicaSet<torch::nn::SequentialImpl> set(net, devices());
  net->push_back(placed(torch::nn::Linear(1, 2)));
  set.synchronize();
  expect_in_line(set, data({4, 2}, 4, at::kFloat));

  const auto growing = placed(std::make_shared<GrowingImpl>());
  growing->extended = true;
  growing->more = growing->register_parameter("more", ones());
  growing->child = growing->register_module("child", placed(std::make_shared<AffineImpl>(2)));
  ReplicaSet<GrowingImpl> growing_set(growing, devices());
  growing->child = growing->replace_module("child", placed(std::make_shared<AffineImpl>(2)));
  growing_set.synchronize();
  expect_in_line(growing_set, data({4, 2}, 4));
}

TEST_P(ReplicaSetChangesTest, FollowsAReplacedParameter) {
  for (const bool share : {true, false}) {
    Set set(net_, devices(), options(share));
    net_->replace_weight(data({3}, 6).requires_grad_());
    set.synchronize();
    expect_in_line(set, data({4, 3}, 4));
  }
}

TEST_P(ReplicaSetChangesTest, AnUpdateBesideANewStorageStillEndsOldGraphs) {
  for (size_t r = 0; r < devices().size(); ++r) {
    const auto net = std::make_shared<PairImpl>(first());
    ReplicaSet<PairImpl> set(net, devices(), options(false));
    const at::Tensor x = data({2}, 1).requires_grad_();
    const at::Tensor loss = (set.replicas()[r]->left * x.to(devices()[r])).sum();
    {
      const at::NoGradGuard no_grad;
      net->left.add_(1);
    }
    net->right.set_data(ones() * 0);
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
  const at::Tensor x = data({4, 3}, 1).requires_grad_();
  const at::Tensor loss = set.replicas().back()->forward(x.to(devices().back())).sum();
  net_->weight.set_data(data({3}, 2));
  {
    const at::NoGradGuard no_grad;
    net_->weight.add_(1);
  }
  set.synchronize();
  if (set.replicas().size() > 1) {
    EXPECT_THAT([&] { loss.backward(); }, ThrowsError("modified by an inplace operation"));
  }
}

TEST_P(ReplicaSetChangesTest, OtherStorageAloneEndsAGraphOfCopiesToo) {
  Set set(net_, devices(), options(/*share_parameters=*/false));
  const at::Tensor x = data({4, 3}, 1).requires_grad_();
  const at::Tensor loss = set.replicas().back()->forward(x.to(devices().back())).sum();
  net_->weight.set_data(data({3}, 2));
  set.synchronize();
  if (set.replicas().size() > 1) {
    EXPECT_THAT([&] { loss.backward(); }, ThrowsError("modified by an inplace operation"));
  }
}

TEST_P(ReplicaSetChangesTest, AnotherShapeGetsAnAccumulatorOfItsOwn) {
  const auto old_accumulator = torch::autograd::impl::gradient_edge(net_->weight).function;
  Set set(net_, devices());
  net_->weight.set_data(data({2, 3}, 5));
  set.synchronize();
  expect_in_line(set, data({2, 3}, 4));
}

TEST_P(ReplicaSetChangesTest, AConjugateIsSeen) {
  const auto net = std::make_shared<PairImpl>(first());
  ReplicaSet<PairImpl> set(net, devices());
  net->left.set_data(at::complex(data({2}, 1), data({2}, 2)));
  set.synchronize();
  net->left.set_data(net->left.detach().conj());
  set.synchronize();
  for (const auto& replica : set.replicas()) {
    EXPECT_TRUE(at::equal(replica->left.detach().cpu(), net->left.detach().cpu()));
  }
}

TEST_P(ReplicaSetChangesTest, AFailureHalfWayIsMadeGood) {
  const auto net = std::make_shared<PairImpl>(first());
  ReplicaSet<PairImpl> set(net, devices(), options(/*share_parameters=*/false));
  const at::Tensor left = net->left.detach(), right = net->right.detach();
  net->left.set_data(ones() * 0);
  // No replica has memory for a copy of this one.
  net->right.set_data(ones()[0].expand({int64_t{1} << 45}));
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
  const auto net = std::make_shared<PairImpl>(first());
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
                            "the list is " +
                            first().str()));
    net_->replace_weight(data({3}, 7).requires_grad_());
    set.synchronize();
    expect_in_line(set, data({4, 3}, 4));
  }
}

TEST_P(ReplicaSetChangesTest, AChildThatCannotBeCopiedIsNamedAndTheSetGoesOnWithoutIt) {
  Set set(net_, devices());
  net_->register_module("plain", placed(std::make_shared<PlainImpl>()));
  EXPECT_THAT([&] { set.synchronize(); }, ThrowsError("does not register all"));
  net_->unregister_module("plain");
  set.synchronize();
  expect_in_line(set, data({4, 3}, 4));
}

}  // namespace
}  // namespace lockstep::replicate
