// SPDX-License-Identifier: Apache-2.0
// Where the gradients of replicas go: one node sums them onto the original's tensors.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <cmath>

#include "replicate/module_tensors.h"
#include "replicate/replica_set.h"
#include "replicate/replicas_fixture.h"
#include "replicate/replicatable.h"
#include "replicate/replicate.h"
#include "replicate/test_modules.h"
#include "testing/device_sets.h"
#include "testing/gradcheck.h"
#include "testing/matchers.h"
#include "testing/random.h"

namespace lockstep::replicate {
namespace {

using lockstep::testing::AllClose;
using lockstep::testing::BitwiseEqual;
using lockstep::testing::random_tensor;
using torch::autograd::grad;

class ReplicateGradientsTest : public ReplicasTest {
 protected:
  at::Tensor times_k(const at::Tensor& tensor) const { return tensor * static_cast<double>(k()); }
  at::Tensor zero(at::ScalarType dtype) const {
    return at::zeros({}, at::TensorOptions(dtype).device(first()));
  }
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS(ReplicateGradientsTest);

// y = sin(x * table) + y_shift, where both tensors come from outside and are buffers.
struct ExternalImpl : torch::nn::Module, Replicatable {
  ExternalImpl(const at::Tensor& first, const at::Tensor& second)
      : table(register_buffer("table", first)), shift(register_buffer("shift", second)) {}
  std::shared_ptr<torch::nn::Module> make_replica() const override {
    return std::make_shared<ExternalImpl>(at::zeros({1}, at::kDouble), at::zeros({1}, at::kDouble));
  }
  at::Tensor forward(const at::Tensor& x) const { return (x * table).sin() + shift * shift; }

  at::Tensor table;
  at::Tensor shift;
};

TEST_P(ReplicateGradientsTest, FirstAndSecondOrderAgreeWithNumericDifferences) {
  const auto function = [&](const std::vector<at::Tensor>& inputs) {
    const auto net = std::make_shared<ExternalImpl>(inputs[0], inputs[1]);
    std::vector<at::Tensor> outputs;
    for (const auto& replica : replicate(net, devices())) {
      const at::Tensor x = random_tensor({2, 2}, 5 + outputs.size());
      outputs.push_back(replica->forward(x.to(devices()[outputs.size()])));
    }
    return outputs;
  };
  const at::Tensor table = data({2, 2}, 1).requires_grad_();
  const at::Tensor plain = data({2, 2}, 2);
  EXPECT_TRUE(lockstep::testing::gradcheck(function, {table, plain}));
  EXPECT_TRUE(lockstep::testing::gradgradcheck(function, {table, plain}));
  EXPECT_TRUE(lockstep::testing::gradcheck(function, {table, data({2, 2}, 3).requires_grad_()}));
}

TEST_P(ReplicateGradientsTest, AStepOfGradientDescentIsThatOfOneDevice) {
  const auto linear = placed(torch::nn::Linear(torch::nn::LinearOptions(2, 1).bias(false)));
  {
    const at::NoGradGuard no_grad;
    linear->weight.copy_(at::arange(1, 3).reshape({1, 2}));
  }
  auto replicas = replicate(linear, devices());
  const auto pieces = at::ones({4, 2}).tensor_split(k());
  at::Tensor loss = zero(at::kFloat);
  for (size_t r = 0; r < replicas.size(); ++r) {
    loss = loss + replicas[r](pieces[r].to(devices()[r])).sum().to(first());
  }
  loss.backward();
  EXPECT_THAT(linear->weight.grad(), BitwiseEqual(at::full({1, 2}, 4.0F)));
  const at::NoGradGuard no_grad;
  linear->weight.sub_(linear->weight.grad(), 0.1);
  EXPECT_THAT(linear->weight.detach(),
              AllClose(at::arange(1, 3).reshape({1, 2}).to(at::kFloat) - 0.4F, {1e-6, 0}));
}

TEST_P(ReplicateGradientsTest, SumsAreThoseOfOneDeviceBitByBit) {
  auto net = placed(torch::nn::Sequential(torch::nn::Linear(3, 5), torch::nn::Linear(5, 2)));
  for (int64_t i = 0; i < k(); ++i) {
    net->forward(data({4, 3}, 10 + i, at::kFloat)).pow(2).sum().backward();
  }
  const auto expected = take_gradients(*net);
  auto replicas = replicate(net, devices());
  at::Tensor loss = zero(at::kFloat);
  for (int64_t i = k() - 1; i >= 0; --i) {
    const at::Tensor x = beside(*replicas[i], data({4, 3}, 10 + i, at::kFloat));
    loss = loss + replicas[i]->forward(x).pow(2).sum().to(first());
  }
  loss.backward();
  const auto gradients = take_gradients(*net);
  for (size_t p = 0; p < expected.size(); ++p) {
    EXPECT_THAT(gradients[p], BitwiseEqual(expected[p])) << "parameter " << p;
  }
}

TEST_P(ReplicateGradientsTest, TheSumRunsFromReplicaZeroUpWhateverTheOrderOfUse) {
  const auto net = std::make_shared<PlainImpl>();
  net->to(first(), at::kFloat);
  ReplicateOptions chosen = options();
  chosen.factory = [] { return std::make_shared<PlainImpl>(); };
  auto replicas = replicate(net, devices(), chosen);
  // In float 1 is lost in 1e8, so that other orders give other sums.
  const std::vector<float> factors = {1e8F, 1.0F, -1e8F, 1.0F};
  at::Tensor loss = zero(at::kFloat);
  for (int64_t r = k() - 1; r >= 0; --r) {
    loss = loss + (replicas[r]->weight * factors[r]).sum().to(first());
  }
  loss.backward();
  float expected = 0;
  for (int64_t r = 0; r < k(); ++r) {
    expected += factors[r];
  }
  EXPECT_THAT(net->weight.grad(), BitwiseEqual(at::full({2}, expected)));
}

TEST_P(ReplicateGradientsTest, AHookOnTheParameterRunsOnceOnTheSum) {
  const auto net = placed(std::make_shared<AffineImpl>(2));
  int calls = 0;
  net->weight.register_hook([&](const at::Tensor& gradient) {
    ++calls;
    return gradient * 10;
  });
  at::Tensor loss = zero(at::kDouble);
  for (const auto& replica : replicate(net, devices())) {
    loss = loss + replica->weight.sum().to(first());
  }
  loss.backward();
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(net->weight.grad(), BitwiseEqual(times_k(at::full({2}, 10.0, at::kDouble))));
}

TEST_P(ReplicateGradientsTest, ATensorThatSomeReplicasUseCountsAsZeroInTheOthers) {
  const auto linear = placed(torch::nn::Linear(2, 1));
  auto replicas = replicate(linear, devices());
  (replicas.back()->weight.sum() * 3).backward();
  EXPECT_THAT(linear->weight.grad(), BitwiseEqual(at::full({1, 2}, 3.0F)));
}

TEST_P(ReplicateGradientsTest, ATensorThatNoReplicaUsesGetsNoGradient) {
  const auto linear = placed(torch::nn::Linear(2, 1));
  at::Tensor loss = zero(at::kFloat);
  for (auto& replica : replicate(linear, devices())) {
    loss = loss + replica->weight.sum().to(first());
  }
  loss.backward();
  EXPECT_TRUE(linear->weight.grad().defined());
  EXPECT_FALSE(linear->bias.grad().defined());
}

TEST_P(ReplicateGradientsTest, GradientsOfSomeTensorsAloneCanBeAskedFor) {
  const auto linear = placed(torch::nn::Linear(2, 1));
  at::Tensor loss = zero(at::kFloat);
  for (auto& replica : replicate(linear, devices())) {
    loss = loss + replica(beside(*replica, at::ones({3, 2}))).sum().to(first());
  }
  const auto gradients = grad({loss}, {linear->bias});
  EXPECT_THAT(gradients[0], BitwiseEqual(times_k(at::full({1}, 3.0F))));
  EXPECT_FALSE(linear->weight.grad().defined());
}

TEST_P(ReplicateGradientsTest, ATiedTensorGetsTheSumOfAllItsUsesOnce) {
  const auto net = placed(std::make_shared<TiedImpl>());
  for (const auto& replica : replicate(net, devices())) {
    const at::Tensor x = beside(*replica, at::ones({2}, at::kDouble));
    (x * replica->a + x * replica->b).sum().backward();
  }
  EXPECT_THAT(net->a.grad(), BitwiseEqual(times_k(at::full({2}, 2.0, at::kDouble))));
  const auto unique = unique_parameters(*net);
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : unique) {
    if (parameter.grad().defined()) {
      parameter.sub_(parameter.grad(), 0.5);
    }
  }
  EXPECT_THAT(net->b.detach(),
              BitwiseEqual(at::full({2}, 1.0 - static_cast<double>(k()), at::kDouble)));
}

TEST_P(ReplicateGradientsTest, SharedChildrenTrainAsOnOneDevice) {
  const auto net = placed(std::make_shared<TiedImpl>());
  expect_gradients_of_one_device<TiedImpl>(net, devices(), [](TiedImpl& m, int64_t i) {
    return m.forward(beside(m, random_tensor({4, 2}, 40 + i))).pow(2).sum();
  });
}

TEST_P(ReplicateGradientsTest, FrozenParametersGetNoneAndTheOthersAllOfTheirs) {
  const auto net = placed(std::make_shared<TiedImpl>());
  net->left->weight.set_requires_grad(false);
  expect_gradients_of_one_device<TiedImpl>(net, devices(), [](TiedImpl& m, int64_t i) {
    return m.forward(beside(m, random_tensor({4, 2}, 50 + i))).pow(2).sum();
  });
  EXPECT_FALSE(net->left->weight.grad().defined());
}

TEST_P(ReplicateGradientsTest, ReplicasMadeWithoutGradModeAreConnectedAllTheSame) {
  const auto net = placed(std::make_shared<AffineImpl>(2));
  std::vector<std::shared_ptr<AffineImpl>> replicas;
  const at::Tensor x = at::ones({2}, at::kDouble).to(first());
  {
    const at::NoGradGuard no_grad;
    replicas = replicate(net, devices());
    EXPECT_FALSE(replicas[0]->forward(x).requires_grad());
  }
  for (const auto& replica : replicas) {
    replica->forward(beside(*replica, x)).sum().backward();
  }
  EXPECT_THAT(net->weight.grad(), BitwiseEqual(times_k(x)));
}

TEST_P(ReplicateGradientsTest, BackwardMayRunTwiceOverARetainedGraph) {
  const auto net = placed(std::make_shared<AffineImpl>(2));
  at::Tensor loss = zero(at::kDouble);
  for (const auto& replica : replicate(net, devices())) {
    const at::Tensor x = beside(*replica, at::ones({2}, at::kDouble));
    loss = loss + replica->forward(x).sum().to(first());
  }
  loss.backward({}, /*retain_graph=*/true);
  loss.backward();
  EXPECT_THAT(net->weight.grad(), BitwiseEqual(times_k(at::full({2}, 2.0, at::kDouble))));
}

TEST_P(ReplicateGradientsTest, ZeroGradOnAReplicaLeavesTheOriginalsGradients) {
  const auto net = placed(std::make_shared<AffineImpl>(2));
  const auto replicas = replicate(net, devices());
  replicas[0]->forward(beside(*net, at::ones({2}, at::kDouble))).sum().backward();
  replicas[0]->zero_grad();
  EXPECT_THAT(net->weight.grad(), BitwiseEqual(at::ones({2}, at::kDouble)));
}

TEST_P(ReplicateGradientsTest, GradientsOutliveReplicasAndModule) {
  auto net = placed(std::make_shared<AffineImpl>(2));
  const at::Tensor weight = net->weight;
  at::Tensor loss = zero(at::kDouble);
  {
    auto replicas = replicate(net, devices());
    for (const auto& replica : replicas) {
      const at::Tensor x = beside(*replica, at::ones({2}, at::kDouble));
      loss = loss + replica->forward(x).sum().to(first());
    }
  }
  net.reset();
  loss.backward();
  EXPECT_THAT(weight.grad(), BitwiseEqual(times_k(at::ones({2}, at::kDouble))));
}

// Lets all intermediate results go before it returns.
at::Tensor penalty(std::vector<torch::nn::ModuleHolder<torch::nn::LinearImpl>>& replicas,
                   const at::Tensor& x) {
  const auto pieces = x.tensor_split(static_cast<int64_t>(replicas.size()));
  at::Tensor total = at::zeros({}, x.options());
  for (size_t r = 0; r < replicas.size(); ++r) {
    total = total + replicas[r](beside(*replicas[r], pieces[r])).sum().to(x.device());
  }
  return grad({total}, {x}, {}, std::nullopt, /*create_graph=*/true)[0].mean();
}

TEST_P(ReplicateGradientsTest, AGradientPenaltyReachesTheWeight) {
  const auto linear = placed(torch::nn::Linear(4, 1));
  const at::Tensor x = at::ones({2, 4}, first()).requires_grad_();
  auto replicas = replicate(linear, devices());
  penalty(replicas, x).backward();
  EXPECT_THAT(linear->weight.grad(), BitwiseEqual(at::full({1, 4}, 0.25F)));
  EXPECT_FALSE(linear->bias.grad().defined() &&
               linear->bias.grad().count_nonzero().item<int64_t>());
}

// mean(critic(x)) + 10 (|d critic / dx| - 1)^2, row by row.
at::Tensor critic_loss(const std::vector<torch::nn::Sequential>& critics, const at::Tensor& rows) {
  const at::Tensor x = rows.detach().requires_grad_();
  const auto pieces = x.tensor_split(static_cast<int64_t>(critics.size()));
  std::vector<at::Tensor> outputs;
  for (size_t r = 0; r < critics.size(); ++r) {
    outputs.push_back(critics[r].ptr()->forward(beside(*critics[r], pieces[r])).to(rows.device()));
  }
  const at::Tensor output = at::cat(outputs);
  const at::Tensor slope = grad({output.sum()}, {x}, {}, std::nullopt, /*create_graph=*/true)[0];
  return output.mean() + 10 * (slope.norm(2, 1) - 1).pow(2).mean();
}

TEST_P(ReplicateGradientsTest, TwentyStepsWithAGradientPenaltyEqualOneDevice) {
  torch::nn::Sequential net(torch::nn::Linear(2, 4), torch::nn::Functional(at::tanh),
                            torch::nn::Linear(4, 1));
  net->to(first(), at::kDouble);
  torch::nn::Sequential reference(
      std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone()));
  const at::Tensor rows = data({8, 2}, 3);
  ReplicaSet<torch::nn::SequentialImpl> set(net, devices());
  const auto step = [](torch::nn::Sequential& module, const at::Tensor& loss) {
    loss.backward();
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : module->parameters()) {
      // The last bias has a constant gradient; it may be undefined only if nothing uses it.
      parameter.sub_(parameter.grad(), 0.01);
      parameter.mutable_grad() = at::Tensor();
    }
    return loss.item<double>();
  };
  for (int i = 0; i < 20; ++i) {
    set.synchronize();
    const double loss =
        step(net, critic_loss({set.replicas().begin(), set.replicas().end()}, rows));
    const double expected = step(reference, critic_loss({reference}, rows));
    EXPECT_NEAR(loss, expected, 1e-10 * std::abs(expected)) << "step " << i;
  }
}

}  // namespace
}  // namespace lockstep::replicate
