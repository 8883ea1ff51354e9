// SPDX-License-Identifier: Apache-2.0
// ReplicaSet when a replica's forward writes to tensors of its own, or puts others in their place.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>

#include "replicate/replica_set.h"
#include "replicate/replicas_fixture.h"
#include "replicate/replicatable.h"
#include "testing/device_sets.h"
#include "testing/matchers.h"

namespace lockstep::replicate {
namespace {

using lockstep::testing::BitwiseEqual;
using lockstep::testing::ThrowsError;

// A buffer in the registry and a member that is in none.
struct StateImpl : torch::nn::Module, Replicatable {
  explicit StateImpl(c10::Device device) : device(device) {
    weight = register_parameter("weight", ones());
    buffer = register_buffer("buffer", ones());
    extra = ones();
  }
  std::shared_ptr<torch::nn::Module> make_replica() const override {
    return std::make_shared<StateImpl>(device);
  }
  void visit_extra_tensors(const TensorVisitor& visit) override {
    visit("extra", extra);
    for (int64_t i = 0; i < num_more; ++i) {
      visit("more " + std::to_string(i), more);
    }
  }
  at::Tensor ones() const { return at::ones({2}, at::TensorOptions(at::kDouble).device(device)); }

  c10::Device device;
  int64_t num_more = 0;
  at::Tensor weight;
  at::Tensor buffer;
  at::Tensor extra;
  at::Tensor more;
};

class ReplicaWritesTest : public ReplicasTest {
 protected:
  // Changes the module's tensors and expects that every replica follows.
  void expect_followed(ReplicaSet<StateImpl>& set, double value) const {
    {
      const at::NoGradGuard no_grad;
      net_->buffer.fill_(value);
      net_->extra.fill_(value + 1);
    }
    set.synchronize();
    for (const auto& replica : set.replicas()) {
      EXPECT_THAT(replica->buffer.cpu(), BitwiseEqual(at::full({2}, value, at::kDouble)));
      EXPECT_THAT(replica->extra.cpu(), BitwiseEqual(at::full({2}, value + 1, at::kDouble)));
      EXPECT_FALSE(replica->buffer.requires_grad());
    }
  }

  const std::shared_ptr<StateImpl> net_ = std::make_shared<StateImpl>(first());
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS(ReplicaWritesTest);

TEST_P(ReplicaWritesTest, ABufferGivenOtherMemoryFollowsTheModuleAgain) {
  ReplicaSet<StateImpl> set(net_, devices(), options());
  for (const auto& replica : set.replicas()) {
    replica->buffer.set_data(replica->buffer * 0.5);
  }
  expect_followed(set, 3);
  for (const auto& replica : set.replicas()) {
    replica->buffer.resize_({5});
  }
  expect_followed(set, 5);
  EXPECT_EQ(net_->buffer.numel(), 2);
}

TEST_P(ReplicaWritesTest, AnExtraTensorThatWasAssignedFollowsTheModuleAgain) {
  ReplicaSet<StateImpl> set(net_, devices(), options());
  for (const auto& replica : set.replicas()) {
    replica->extra = replica->extra * 0.5;
  }
  expect_followed(set, 3);
  set.replicas().back()->extra = at::Tensor();
  expect_followed(set, 5);
}

TEST_P(ReplicaWritesTest, AHistoryInABufferEndsWithTheNextSynchronisation) {
  ReplicaSet<StateImpl> set(net_, devices(), options());
  for (const auto& replica : set.replicas()) {
    replica->buffer.mul_(replica->weight);
    EXPECT_TRUE(replica->buffer.requires_grad());
  }
  expect_followed(set, 3);
}

TEST_P(ReplicaWritesTest, AWriteOfOneReplicaEndsItsOldGraphsWhenItIsReplaced) {
  ReplicaSet<StateImpl> set(net_, devices(), options());
  const auto last = set.replicas().back();
  {
    const at::NoGradGuard no_grad;
    last->buffer.add_(1);
  }
  const at::Tensor loss = (last->weight * last->buffer).sum();
  set.synchronize();
  if (set.replicas().size() > 1) {
    // The module's value has replaced the one that the graph saved.
    EXPECT_THAT([&] { loss.backward(); }, ThrowsError("modified by an inplace operation"));
  } else {
    loss.backward();
  }
}

TEST_P(ReplicaWritesTest, SynchronisingAnUnchangedModuleEndsNoGraph) {
  ReplicaSet<StateImpl> set(net_, devices(), options());
  for (const auto& replica : set.replicas()) {
    const at::Tensor loss = (replica->weight * replica->buffer).sum();
    set.synchronize();
    loss.backward();
  }
  EXPECT_EQ(net_->weight.grad()[0].item<double>(), static_cast<double>(devices().size()));
}

TEST_P(ReplicaWritesTest, AReplicaThatNamesMoreExtraTensorsThanBeforeIsAnError) {
  ReplicaSet<StateImpl> set(net_, devices(), options());
  set.replicas()[0]->num_more = 1;
  EXPECT_THAT([&] { set.synchronize(); }, ThrowsError("names 'more 0' as one more tensor"));
}

TEST_P(ReplicaWritesTest, ParametersThatForwardWritesAreNotShared) {
  for (const bool writes : {false, true}) {
    ReplicateOptions settings = options();
    settings.writes_parameters = [&](const torch::nn::Module& module) {
      return writes && dynamic_cast<const StateImpl*>(&module) != nullptr;
    };
    ReplicaSet<StateImpl> set(net_, devices(), settings);
    const auto replicas = set.replicas();
    for (size_t r = 1; r < devices().size(); ++r) {
      const bool shares = replicas[r]->weight.storage().is_alias_of(net_->weight.storage());
      EXPECT_EQ(shares, !writes && devices()[r] == devices()[0]) << "replica " << r;
    }
    EXPECT_TRUE(replicas[0]->weight.storage().is_alias_of(net_->weight.storage()));
  }
}

}  // namespace
}  // namespace lockstep::replicate
