// SPDX-License-Identifier: Apache-2.0
// What replicas are, share and own. Gradients: replicate_gradients_test.cc; LibTorch's layers:
// replicate_layers_test.cc.
#include "replicate/replicate.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <thread>

#include "replicate/replicas_fixture.h"
#include "replicate/test_modules.h"
#include "testing/device_sets.h"
#include "testing/matchers.h"

namespace lockstep::replicate {
namespace {

using lockstep::testing::BitwiseEqual;
using lockstep::testing::ThrowsError;

class ReplicateTest : public ReplicasTest {};
LOCKSTEP_INSTANTIATE_DEVICE_SETS(ReplicateTest);

TEST_P(ReplicateTest, ReplicasHaveTheModulesTypeValuesAndDevices) {
  auto linear = placed(torch::nn::Linear(3, 4));
  std::vector<torch::nn::Linear::ContainedType*> seen = {linear.get()};
  for (auto& replica : replicate(linear, devices(), options())) {
    for (auto* other : seen) {
      EXPECT_NE(replica.get(), other);
    }
    seen.push_back(replica.get());
    EXPECT_THAT(replica->weight.detach(), BitwiseEqual(linear->weight.detach()));
    EXPECT_THAT(replica->bias.detach(), BitwiseEqual(linear->bias.detach()));
    EXPECT_EQ(replica->weight.device(), devices()[seen.size() - 2]);
  }
  EXPECT_EQ(seen.size(), devices().size() + 1);
}

TEST_P(ReplicateTest, ReplicasAreCalledWithoutACast) {
  auto linear = placed(torch::nn::Linear(10, 5));
  const auto affine = placed(std::make_shared<AffineImpl>(10));
  const at::Tensor x = at::ones({2, 10}, first());
  for (auto& replica : replicate(linear, devices())) {
    EXPECT_THAT(replica(beside(*replica, x)).detach(), BitwiseEqual(linear(x).detach()));
  }
  for (const auto& replica : replicate(affine, devices())) {
    EXPECT_THAT(replica->forward(beside(*replica, x)).detach(),
                BitwiseEqual(affine->forward(x).detach()));
  }
}

TEST_P(ReplicateTest, ParametersAreSharedOnTheModulesDeviceUnlessAskedNot) {
  const auto net = placed(std::make_shared<AffineImpl>(3));
  const auto sharing = replicate(net, devices(), options());
  const auto owning = replicate(net, devices(), options(/*share_parameters=*/false));
  for (size_t r = 0; r < devices().size(); ++r) {
    EXPECT_EQ(sharing[r]->weight.is_alias_of(net->weight), devices()[r] == devices()[0]);
    EXPECT_EQ(owning[r]->weight.is_alias_of(net->weight), r == 0);
    EXPECT_THAT(owning[r]->weight.detach(), BitwiseEqual(net->weight.detach()));
  }
}

TEST_P(ReplicateTest, MembersAndRegistryNameTheSameTensors) {
  const auto net = placed(std::make_shared<AffineImpl>(3));
  for (const auto& replica : replicate(net, devices())) {
    EXPECT_TRUE(replica->named_parameters()["weight"].is_same(replica->weight));
    EXPECT_TRUE(replica->named_buffers()["shift"].is_same(replica->shift));
    EXPECT_FALSE(replica->weight.is_same(net->weight));
  }
}

TEST_P(ReplicateTest, BuffersAreSharedByReplicaZeroAndOwnedByTheOthers) {
  const auto net = placed(std::make_shared<AffineImpl>(3));
  const auto replicas = replicate(net, devices());
  const at::Tensor before = net->shift.clone();
  for (size_t r = 0; r < replicas.size(); ++r) {
    EXPECT_THAT(replicas[r]->shift, BitwiseEqual(before));
    EXPECT_EQ(replicas[r]->shift.is_alias_of(net->shift), r == 0);
  }
  for (const auto& replica : replicas) {
    replica->shift.add_(1);
  }
  EXPECT_THAT(net->shift, BitwiseEqual(before + 1));
}

TEST_P(ReplicateTest, BatchNormStatisticsMoveByTheBatchOfReplicaZero) {
  auto norm = placed(torch::nn::BatchNorm1d(10));
  auto reference = placed(torch::nn::BatchNorm1d(10));
  const at::Tensor x = data({8, 10}, 1, at::kFloat);
  reference(x);
  auto replicas = replicate(norm, devices());
  for (size_t r = 0; r < replicas.size(); ++r) {
    replicas[r](r == 0 ? x : beside(*replicas[r], data({8, 10}, 2 + r, at::kFloat)));
    EXPECT_EQ(replicas[r]->num_batches_tracked.device(), devices()[r]);
  }
  EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 1);
  EXPECT_THAT(norm->running_mean, BitwiseEqual(reference->running_mean));
  EXPECT_THAT(norm->running_var, BitwiseEqual(reference->running_var));
  EXPECT_THAT(norm->running_mean, ::testing::Not(BitwiseEqual(at::zeros({10}))));
}

TEST_P(ReplicateTest, ParametersOfAReplicaAreListedButAreNoLeaves) {
  const auto net = placed(std::make_shared<AffineImpl>(3));
  for (const auto& replica : replicate(net, devices())) {
    ASSERT_EQ(replica->parameters().size(), 1);
    EXPECT_TRUE(replica->weight.requires_grad());
    EXPECT_FALSE(replica->weight.is_leaf());
  }
}

TEST_P(ReplicateTest, FrozenParametersStayFrozen) {
  const auto linear = placed(torch::nn::Linear(3, 2));
  linear->weight.set_requires_grad(false);
  for (auto& replica : replicate(linear, devices())) {
    EXPECT_FALSE(replica->weight.requires_grad());
    EXPECT_TRUE(replica->bias.requires_grad());
    EXPECT_TRUE(replica(beside(*replica, at::ones({1, 3}))).requires_grad());
  }
  linear->bias.set_requires_grad(false);
  for (auto& replica : replicate(linear, devices())) {
    EXPECT_FALSE(replica(beside(*replica, at::ones({1, 3}))).requires_grad());
  }
}

TEST_P(ReplicateTest, TiedTensorsAndSharedChildrenStayTied) {
  const auto net = placed(std::make_shared<TiedImpl>());
  for (const bool share : {true, false}) {
    for (const auto& replica : replicate(net, devices(), options(share))) {
      EXPECT_TRUE(replica->a.is_alias_of(replica->b));
      EXPECT_EQ(replica->a.data_ptr(), replica->b.data_ptr());
      EXPECT_EQ(replica->left, replica->right);
      EXPECT_TRUE(replica->left->weight.is_same(replica->right->weight));
    }
  }
}

TEST_P(ReplicateTest, ModesAreThoseOfEverySubmodule) {
  torch::nn::ModuleList net(
      torch::nn::Linear(2, 2), torch::nn::Dropout(0.5),
      torch::nn::ModuleList(torch::nn::Dropout(0.5), torch::nn::Linear(2, 2)));
  net->to(first());
  net->children()[2]->eval();
  net->children()[2]->children()[1]->train();
  for (auto& replica : replicate(net, devices())) {
    const auto modules = net->modules();
    const auto copies = replica->modules();
    ASSERT_EQ(modules.size(), 6);
    ASSERT_EQ(copies.size(), 6);
    for (size_t i = 0; i < modules.size(); ++i) {
      EXPECT_EQ(copies[i]->is_training(), modules[i]->is_training()) << "module " << i;
    }
  }
}

TEST_P(ReplicateTest, ReplicasOfAModuleInEvalModeGiveItsOutputs) {
  auto net = placed(torch::nn::Sequential(torch::nn::Linear(2, 2), torch::nn::Dropout(0.5)));
  net->eval();
  const at::Tensor x = at::ones({4, 2}, first());
  for (auto& replica : replicate(net, devices())) {
    EXPECT_FALSE(replica->children()[1]->is_training());
    EXPECT_THAT(replica->forward(beside(*replica, x)).detach(),
                BitwiseEqual(net->forward(x).detach()));
  }
}

TEST_P(ReplicateTest, UndefinedEntriesStayUndefined) {
  const auto linear = placed(torch::nn::Linear(torch::nn::LinearOptions(3, 2).bias(false)));
  const torch::nn::BatchNorm1d norm(
      torch::nn::BatchNorm1dOptions(3).affine(false).track_running_stats(false));
  for (auto& replica : replicate(linear, devices())) {
    EXPECT_FALSE(replica->bias.defined());
    replica(beside(*replica, at::ones({1, 3}))).sum().backward();
  }
  EXPECT_THAT(linear->weight.grad(),
              BitwiseEqual(at::ones({2, 3}) * static_cast<double>(devices().size())));
  for (auto& replica : replicate(norm, devices())) {
    EXPECT_FALSE(replica->weight.defined());
    EXPECT_FALSE(replica->running_mean.defined());
    EXPECT_TRUE(replica(at::ones({2, 3})).defined());
  }
}

TEST_P(ReplicateTest, TheDefaultGeneratorIsLeftUntouched) {
  const auto net = placed(std::make_shared<AffineImpl>(3));
  const at::Tensor before = generator_state();
  replicate(net, devices());
  EXPECT_THAT(generator_state(), BitwiseEqual(before));
}

TEST_P(ReplicateTest, SharedParametersCostNoTransfer) {
  const auto linear = placed(torch::nn::Linear(3, 4));
  const auto before = GetParam().counters();
  replicate(linear, std::vector<c10::Device>(devices().size(), first()), options());
  EXPECT_EQ(GetParam().counters().bytes, before.bytes);
}

TEST_P(ReplicateTest, MembersThatAreNoTensorsAreCopies) {
  const auto net = placed(std::make_shared<AffineImpl>(3));
  net->width = 42;
  for (const auto& replica : replicate(net, devices())) {
    EXPECT_EQ(replica->width, 42);
    replica->width = 7;
  }
  EXPECT_EQ(net->width, 42);
}

TEST_P(ReplicateTest, AnExecutorMayRunTheWorkInAnyOrderAndOnAnyThread) {
  const auto net = placed(std::make_shared<TiedImpl>());
  ReplicateOptions chosen = options();
  int64_t count = 0;
  chosen.executor = [&](int64_t n, const std::function<void(int64_t)>& task) {
    count = n;
    std::vector<std::thread> threads;
    for (int64_t i = n - 1; i >= 0; --i) {
      threads.emplace_back([&task, i] { task(i); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  };
  const auto replicas = replicate(net, devices(), chosen);
  EXPECT_EQ(count, static_cast<int64_t>(devices().size()));
  const at::Tensor x = data({4, 2}, 1);
  for (const auto& replica : replicas) {
    EXPECT_THAT(replica->forward(beside(*replica, x)).detach(),
                BitwiseEqual(net->forward(x).detach()));
  }
}

TEST_P(ReplicateTest, SeveralThreadsMayReplicateOneModule) {
  const auto net = placed(std::make_shared<AffineImpl>(3));
  const at::Tensor before = generator_state();
  std::vector<std::thread> threads;
  std::vector<std::vector<std::shared_ptr<AffineImpl>>> sets(4);
  for (auto& set : sets) {
    threads.emplace_back([&] { set = replicate(net, devices(), options()); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_THAT(generator_state(), BitwiseEqual(before));
  for (const auto& set : sets) {
    for (const auto& replica : set) {
      replica->weight.sum().backward();
    }
  }
  EXPECT_THAT(net->weight.grad(),
              BitwiseEqual(at::ones({3}, at::kDouble) * static_cast<double>(4 * devices().size())));
}

TEST_P(ReplicateTest, ReplicasMadeInInferenceModeStillTrain) {
  for (const bool share : {true, false}) {
    const auto net = placed(std::make_shared<AffineImpl>(3));
    std::vector<std::shared_ptr<AffineImpl>> replicas;
    {
      const c10::InferenceMode inference;
      replicas = replicate(net, devices(), options(share));
      const at::Tensor x = at::ones({3}, at::kDouble).to(first());
      EXPECT_FALSE(replicas[0]->forward(x).requires_grad());
    }
    for (const auto& replica : replicas) {
      // An input that requires grad makes autograd save the parameter.
      const at::Tensor x = beside(*replica, at::ones({3}, at::kDouble)).requires_grad_();
      replica->forward(x).sum().backward();
    }
    EXPECT_THAT(net->weight.grad(),
                BitwiseEqual(at::ones({3}, at::kDouble) * static_cast<double>(devices().size())));
  }
}

TEST_P(ReplicateTest, AModuleMadeInInferenceModeReplicatesForInference) {
  std::shared_ptr<AffineImpl> net;
  {
    const c10::InferenceMode inference;
    net = placed(std::make_shared<AffineImpl>(3));
  }
  const at::Tensor x = at::ones({3}, at::kDouble).to(first());
  const auto replicas = replicate(net, devices(), options());
  const c10::InferenceMode inference;
  for (const auto& replica : replicas) {
    EXPECT_THAT(replica->forward(beside(*replica, x)), BitwiseEqual(net->forward(x)));
  }
}

// A parameter and a buffer, each on a device of its own.
struct PlacedImpl : torch::nn::Cloneable<PlacedImpl> {
  PlacedImpl(c10::Device weight, c10::Device shift) : weight_device(weight), shift_device(shift) {
    reset();
  }
  void reset() override {
    ++num_resets;
    register_parameter("weight", at::ones({2}, weight_device));
    register_buffer("shift", at::ones({2}, shift_device));
  }
  c10::Device weight_device;
  c10::Device shift_device;
  static int num_resets;
};
int PlacedImpl::num_resets = 0;

TEST_P(ReplicateTest, AllTensorsTravelToAnotherDeviceInOneMessage) {
  // The meta device stands for another device: its tensors have shapes, but no values.
  const c10::Device meta(c10::kMeta);
  const auto net = std::make_shared<PlacedImpl>(devices()[0], devices()[0]);
  ReplicateOptions chosen = options();
  bool first = true;
  chosen.factory = [&] {
    const c10::Device device = first ? devices()[0] : meta;
    first = false;
    return std::make_shared<PlacedImpl>(device, device);
  };
  const auto before = GetParam().counters();
  const auto replicas = replicate(net, {devices()[0], meta}, chosen);
  const auto after = GetParam().counters();
  EXPECT_EQ(after.calls - before.calls, 1);
  EXPECT_EQ(after.messages - before.messages, 1);
  EXPECT_EQ(after.bytes - before.bytes, (2 + 2) * 4);
  EXPECT_TRUE(replicas[1]->parameters()[0].is_meta());
  EXPECT_TRUE(replicas[1]->parameters()[0].requires_grad());
  EXPECT_TRUE(replicas[1]->buffers()[0].is_meta());
}

TEST_P(ReplicateTest, AMisplacedTensorIsNamedBeforeAnyWork) {
  const c10::Device home = devices()[0];
  const c10::Device meta(c10::kMeta);
  const std::string rest = " is on meta, but the first device of the list is " + home.str();
  const at::Tensor generator = generator_state();
  const auto counters = GetParam().counters();
  const auto weight_away = std::make_shared<PlacedImpl>(meta, home);
  const auto shift_away = std::make_shared<PlacedImpl>(home, meta);
  const int resets = PlacedImpl::num_resets;
  EXPECT_THAT([&] { replicate(weight_away, devices(), options()); },
              ThrowsError("[replicate] parameter 'weight'" + rest));
  EXPECT_THAT([&] { replicate(shift_away, devices(), options()); },
              ThrowsError("[replicate] buffer 'shift'" + rest));
  EXPECT_EQ(PlacedImpl::num_resets, resets);
  EXPECT_EQ(GetParam().counters().calls, counters.calls);
  EXPECT_THAT(generator_state(), BitwiseEqual(generator));
}

TEST_P(ReplicateTest, AModuleThatCannotBeCopiedIsRefusedBeforeAnyTransfer) {
  const auto counters = GetParam().counters();
  const auto plain = placed(std::make_shared<PlainImpl>());
  EXPECT_THAT([&] { replicate(plain, devices(), options()); },
              ThrowsError("lockstep::replicate::PlainImpl has no clone()"));
  EXPECT_EQ(GetParam().counters().calls, counters.calls);
}

TEST(ReplicateArgumentsTest, AnEmptyListGivesNoReplicas) {
  EXPECT_TRUE(replicate(std::make_shared<AffineImpl>(3), {}).empty());
  EXPECT_TRUE(replicate(torch::nn::Linear(1, 1), {}).empty());
}

TEST(ReplicateArgumentsTest, ANullModuleIsRefused) {
  EXPECT_THAT([] { replicate(std::shared_ptr<AffineImpl>(), {c10::Device(c10::kCPU)}); },
              ThrowsError("expected a module, got null"));
}

}  // namespace
}  // namespace lockstep::replicate
