// SPDX-License-Identifier: Apache-2.0
// ReplicaSet over many steps of one module: values, modes, gradients and graphs of before. Changes
// of the module's structure and layout: replica_set_changes_test.cc.
#include "replicate/replica_set.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

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

// Each test runs with parameters shared, and again with parameters owned, as on other devices.
class ReplicaSetTest : public ReplicasTest {
 protected:
  void add_one(const at::Tensor& tensor) const {
    const at::NoGradGuard no_grad;
    tensor.add_(1);
  }

  // What `times` uses of x_ give net_'s weight.
  at::Tensor gradient(int64_t times) const { return x_ * static_cast<double>(times); }

  const std::shared_ptr<AffineImpl> net_ = placed(std::make_shared<AffineImpl>(3));
  const at::Tensor x_ = data({3}, 1);
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS(ReplicaSetTest);

TEST_P(ReplicaSetTest, HoldsTheModuleItselfAndOneReplicaPerDevice) {
  const Set set(net_, devices());
  EXPECT_EQ(set.module(), net_);
  EXPECT_EQ(set.devices(), devices());
  EXPECT_EQ(set.replicas().size(), devices().size());
  const auto linear = placed(torch::nn::Linear(2, 2));
  EXPECT_EQ(ReplicaSet<torch::nn::LinearImpl>(linear, devices()).module(), linear.ptr());
}

TEST_P(ReplicaSetTest, FollowsUpdatesInPlaceAndKeepsItsReplicas) {
  for (const bool share : {true, false}) {
    Set set(net_, devices(), options(share));
    const auto before = set.replicas();
    const int64_t resets = AffineImpl::num_resets;
    for (int step = 0; step < 3; ++step) {
      add_one(net_->weight);
      add_one(net_->shift);
      set.synchronize();
      for (const auto& replica : set.replicas()) {
        EXPECT_THAT(replica->weight.detach(), BitwiseEqual(net_->weight.detach()));
        EXPECT_THAT(replica->shift, BitwiseEqual(net_->shift));
      }
    }
    EXPECT_EQ(set.replicas(), before);
    EXPECT_EQ(AffineImpl::num_resets, resets);
  }
}

TEST_P(ReplicaSetTest, TrainsAsOneDevice) {
  for (const bool share : {true, false}) {
    const auto reference = std::dynamic_pointer_cast<AffineImpl>(net_->clone());
    Set set(net_, devices(), options(share));
    for (int step = 0; step < 5; ++step) {
      set.synchronize();
      for (size_t r = 0; r < devices().size(); ++r) {
        const at::Tensor piece = data({2, 3}, 10 * step + r);
        set.replicas()[r]->forward(piece.to(devices()[r])).pow(2).sum().backward();
        reference->forward(piece).pow(2).sum().backward();
      }
      const at::NoGradGuard no_grad;
      for (AffineImpl* module : {net_.get(), reference.get()}) {
        module->weight.sub_(module->weight.grad(), 0.01);
        module->zero_grad();
      }
      EXPECT_THAT(net_->weight.detach(), BitwiseEqual(reference->weight.detach()));
    }
  }
}

TEST_P(ReplicaSetTest, BuffersOfTheOthersAreRefreshedFromReplicaZeros) {
  const auto norm = placed(torch::nn::BatchNorm1d(3));
  ReplicaSet<torch::nn::BatchNorm1dImpl> set(norm, devices());
  for (int step = 1; step <= 3; ++step) {
    set.synchronize();
    for (size_t r = 0; r < devices().size(); ++r) {
      const auto& replica = set.replicas()[r];
      EXPECT_EQ(replica->running_mean.is_alias_of(norm->running_mean), r == 0);
      EXPECT_THAT(replica->running_mean, BitwiseEqual(norm->running_mean));
      EXPECT_EQ(replica->num_batches_tracked.item<int64_t>(), step - 1);
    }
    for (size_t r = devices().size(); r-- > 0;) {
      const at::Tensor x = data({4, 3}, 10 * step + r, at::kFloat);
      set.replicas()[r]->forward(x.to(devices()[r]));
    }
    EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), step);
  }
}

TEST_P(ReplicaSetTest, FollowsModesOfEverySubmodule) {
  torch::nn::ModuleList net(
      torch::nn::Linear(2, 2),
      torch::nn::ModuleList(torch::nn::Dropout(0.5), torch::nn::BatchNorm1d(2)));
  net->to(first());
  ReplicaSet<torch::nn::ModuleListImpl> set(net, devices());
  const auto expect_same = [&](const char* when) {
    set.synchronize();
    for (const auto& replica : set.replicas()) {
      for (size_t i = 0; i < net->modules().size(); ++i) {
        EXPECT_EQ(replica->modules()[i]->is_training(), net->modules()[i]->is_training())
            << when << ", module " << i;
      }
    }
  };
  net->eval();
  expect_same("all in eval");
  net->modules()[4]->train();
  expect_same("one in training");
  net->train();
  net->modules()[2]->eval();
  net->modules()[3]->train();
  expect_same("a child that differs from its parent");
}

TEST_P(ReplicaSetTest, ParametersMayBeFrozenAndThawed) {
  for (const bool share : {true, false}) {
    Set set(net_, devices(), options(share));
    net_->weight.set_requires_grad(false);
    set.synchronize();
    for (const auto& replica : set.replicas()) {
      EXPECT_FALSE(replica->weight.requires_grad());
      EXPECT_FALSE(replica->forward(beside(*replica, x_)).requires_grad());
    }
    net_->weight.set_requires_grad(true);
    set.synchronize();
    for (const auto& replica : set.replicas()) {
      replica->forward(beside(*replica, x_)).sum().backward();
    }
    EXPECT_THAT(take_gradients(*net_)[0], AllClose(gradient(k()), {1e-12, 1e-12}));
  }
}

TEST_P(ReplicaSetTest, TwoForwardsMayComeBeforeABackward) {
  for (const bool share : {true, false}) {
    Set set(net_, devices(), options(share));
    at::Tensor loss = at::zeros({}, x_.options());
    for (int forward = 0; forward < 2; ++forward) {
      set.synchronize();
      for (const auto& replica : set.replicas()) {
        const at::Tensor x = beside(*replica, x_).clone().requires_grad_();
        loss = loss + replica->forward(x).sum().to(first());
      }
    }
    loss.backward();
    EXPECT_THAT(take_gradients(*net_)[0], AllClose(gradient(2 * k()), {1e-12, 1e-12}));
  }
}

TEST_P(ReplicaSetTest, TwoForwardsOfBatchNormMayComeBeforeABackward) {
  for (const bool share : {true, false}) {
    torch::nn::BatchNorm1d norm(3);
    norm->to(first(), at::kDouble);
    torch::nn::BatchNorm1d reference(3);
    reference->to(first(), at::kDouble);
    ReplicaSet<torch::nn::BatchNorm1dImpl> set(norm, devices(), options(share));
    at::Tensor loss = at::zeros({}, x_.options());
    for (uint64_t forward = 0; forward < 2; ++forward) {
      set.synchronize();
      for (size_t r = 0; r < devices().size(); ++r) {
        const at::Tensor x = data({4, 3}, 10 * forward + r).requires_grad_();
        loss = loss + set.replicas()[r]->forward(x.to(devices()[r])).pow(3).sum().to(first());
        reference->forward(x).pow(3).sum().backward();
      }
    }
    loss.backward();
    EXPECT_THAT(norm->weight.grad(), AllClose(reference->weight.grad(), {1e-12, 1e-12}));
    EXPECT_THAT(norm->bias.grad(), AllClose(reference->bias.grad(), {1e-12, 1e-12}));
  }
}

TEST_P(ReplicaSetTest, AGraphFromBeforeAnUpdateThrowsInBackward) {
  for (const bool share : {true, false}) {
    for (size_t r = 0; r < devices().size(); ++r) {
      Set set(net_, devices(), options(share));
      const at::Tensor x = x_.clone().requires_grad_().to(devices()[r]);
      const at::Tensor loss = set.replicas()[r]->forward(x).sum();
      add_one(net_->weight);
      set.synchronize();
      EXPECT_THAT([&] { loss.backward(); }, ThrowsError("modified by an inplace operation"))
          << "replica " << r << ", shared " << share;
    }
  }
}

TEST_P(ReplicaSetTest, AGraphFromBeforeASynchronisationWithoutChangesStaysGood) {
  for (const bool share : {true, false}) {
    for (size_t r = 0; r < devices().size(); ++r) {
      Set set(net_, devices(), options(share));
      const at::Tensor x = x_.clone().requires_grad_().to(devices()[r]);
      const at::Tensor loss = set.replicas()[r]->forward(x).sum();
      set.synchronize();
      loss.backward();
      EXPECT_THAT(take_gradients(*net_)[0], AllClose(x_, {1e-12, 1e-12}));
    }
  }
}

TEST_P(ReplicaSetTest, GradModesMayBeMixedBetweenSteps) {
  for (const bool share : {true, false}) {
    std::unique_ptr<Set> set;
    {
      const at::NoGradGuard no_grad;
      set = std::make_unique<Set>(net_, devices(), options(share));
      EXPECT_FALSE(set->replicas()[0]->forward(x_).requires_grad());
    }
    for (int step = 0; step < 2; ++step) {
      {
        const c10::InferenceMode inference;
        add_one(net_->shift);
        set->synchronize();
        for (const auto& replica : set->replicas()) {
          EXPECT_THAT(replica->forward(beside(*replica, x_)).clone(),
                      AllClose(net_->forward(x_).clone(), {1e-12, 1e-12}));
        }
      }
      set->synchronize();
      for (const auto& replica : set->replicas()) {
        replica->forward(beside(*replica, x_)).sum().backward();
      }
      EXPECT_THAT(take_gradients(*net_)[0], AllClose(gradient(k()), {1e-12, 1e-12}));
    }
  }
}

TEST_P(ReplicaSetTest, TheDefaultGeneratorIsLeftUntouched) {
  const at::Tensor before = generator_state();
  Set set(net_, devices());
  add_one(net_->weight);
  set.synchronize();
  net_->weight.set_requires_grad(false);
  set.synchronize();
  EXPECT_THAT(generator_state(), BitwiseEqual(before));
}

TEST_P(ReplicaSetTest, SeveralSetsOfOneModuleWorkSideBySide) {
  Set sharing(net_, devices(), options(true));
  Set owning(net_, devices(), options(false));
  for (Set* set : {&sharing, &owning}) {
    for (const auto& replica : set->replicas()) {
      replica->forward(beside(*replica, x_)).sum().backward();
    }
  }
  EXPECT_THAT(take_gradients(*net_)[0], AllClose(gradient(2 * k()), {1e-12, 1e-12}));
}

TEST(ReplicaSetArgumentsTest, AnEmptyDeviceListIsRefused) {
  EXPECT_THAT([] { Set(std::make_shared<AffineImpl>(3), {}); },
              ThrowsError("[replicate] expected at least one device, got an empty list"));
}

TEST(ReplicaSetArgumentsTest, ANullModuleIsRefused) {
  EXPECT_THAT([] { Set(std::shared_ptr<AffineImpl>(), {c10::Device(c10::kCPU)}); },
              ThrowsError("[replicate] expected a module, got null"));
}

}  // namespace
}  // namespace lockstep::replicate
