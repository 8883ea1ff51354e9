// SPDX-License-Identifier: Apache-2.0
// Faults of replicated modules that people reported in public, cut down to their numbers. What
// other suites of this folder prove with the same numbers is not repeated here.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <string>

#include "replicate/replica_set.h"
#include "replicate/replicas_fixture.h"
#include "replicate/test_modules.h"
#include "testing/device_sets.h"
#include "testing/matchers.h"

namespace lockstep::replicate {
namespace {

using lockstep::testing::BitwiseEqual;
using lockstep::testing::ThrowsError;

class ReplicaReportsTest : public ReplicasTest {};
LOCKSTEP_INSTANTIATE_DEVICE_SETS(ReplicaReportsTest);

// pytorch#5851
TEST_P(ReplicaReportsTest, OnlyTheForwardUnderNoGradIsUntrackedInEveryReplica) {
  torch::nn::Linear linear(2, 2);
  linear->to(first());
  for (const bool share : {true, false}) {
    ReplicaSet<torch::nn::LinearImpl> set(linear, devices(), options(share));
    for (const bool recording : {true, false, true}) {
      const at::AutoGradMode mode(recording);
      set.synchronize();
      for (const auto& replica : set.replicas()) {
        EXPECT_EQ(replica->forward(beside(*replica, at::ones({1, 2}))).requires_grad(), recording);
      }
    }
  }
}

// pytorch#38493, pytorch#49828, huggingface/transformers#8145
TEST_P(ReplicaReportsTest, AReplicaListsItsParametersWithTheirDtypeAndItsOwnDevice) {
  const auto net = placed(std::make_shared<AffineImpl>(2));
  const auto replicas = replicate(net, devices(), options());
  for (int64_t r = 0; r < k(); ++r) {
    ASSERT_EQ(replicas[r]->parameters().size(), 1);
    EXPECT_EQ(replicas[r]->parameters()[0].dtype(), at::kDouble);
    EXPECT_EQ(replicas[r]->parameters()[0].device(), devices()[r]);
  }
}

// pytorch#38493
TEST_P(ReplicaReportsTest, AnOptimizerOfAReplicasParametersIsRefused) {
  const auto net = placed(std::make_shared<AffineImpl>(2));
  for (const auto& replica : replicate(net, devices(), options())) {
    EXPECT_THAT([&] { torch::optim::SGD(replica->parameters(), 0.1); }, ThrowsError("non-leaf"));
  }
  torch::optim::SGD(net->parameters(), 0.1);
}

// pytorch#3930, pytorch#28275
TEST_P(ReplicaReportsTest, ThreeThousandSmallParametersTravelInAFewMessages) {
  constexpr int64_t kParameters = 3000;
  constexpr int64_t kElements = 3500;
  struct Many : torch::nn::Cloneable<Many> {
    Many() { Many::reset(); }
    void reset() override {
      for (int64_t i = 0; i < kParameters; ++i) {
        register_parameter("p" + std::to_string(i), at::zeros({kElements}));
      }
    }
  };
  int64_t destinations = 0;
  for (const c10::Device device : devices()) {
    destinations += device != first();
  }
  if (destinations != 1) {
    GTEST_SKIP() << "one other device is enough for a module of this size";
  }
  const auto net = placed(std::make_shared<Many>());
  const int64_t groups = kParameters * kElements * 4 / options().buffer_bytes + 1;
  auto before = GetParam().counters();
  ReplicaSet<Many> set(net, devices(), options());
  EXPECT_LE(GetParam().counters().messages - before.messages, groups);

  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : net->parameters()) {
    parameter.add_(1);
  }
  before = GetParam().counters();
  set.synchronize();
  EXPECT_LE(GetParam().counters().messages - before.messages, groups);
  const auto copies = set.replicas().back()->parameters();
  for (int64_t i = 0; i < kParameters; i += 100) {
    ASSERT_THAT(copies[i].detach(), BitwiseEqual(at::ones({kElements})));
  }
}

}  // namespace
}  // namespace lockstep::replicate
