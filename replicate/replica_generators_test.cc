// SPDX-License-Identifier: Apache-2.0
#include "replicate/replica_generators.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/alpha_dropout.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/feature_dropout.h>
#include <ATen/ops/full.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/normal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/poisson.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/rand_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/rrelu.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/rnn.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "replicate/test_modules.h"
#include "testing/matchers.h"

namespace lockstep::replicate::internal {
namespace {

using lockstep::testing::BitwiseEqual;

constexpr size_t kReplicas = 4;
constexpr int kRepeats = 10;

using Draw = std::function<at::Tensor()>;

at::Tensor draw() { return at::rand({5}); }

void seed_default(uint64_t seed) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(seed);
}

void draw_number() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.get<at::CPUGeneratorImpl>()->random64();
}

// What the replicas draw at the same time, each on a thread of its own.
std::vector<at::Tensor> run(ReplicaGenerators& generators, const Draw& forward) {
  generators.begin();
  std::vector<at::Tensor> drawn(kReplicas);
  std::atomic<size_t> arrived{0};
  std::vector<std::thread> threads;
  for (size_t r = 0; r < kReplicas; ++r) {
    threads.emplace_back([&, r] {
      const ReplicaGenerators::Scope scope(generators, r);
      ++arrived;
      while (arrived < kReplicas) {
        std::this_thread::yield();
      }
      drawn[r] = forward();
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return drawn;
}

at::Tensor draw_alone(ReplicaGenerators& generators, size_t replica) {
  const ReplicaGenerators::Scope scope(generators, replica);
  return draw();
}

void expect_equal(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& expected) {
  for (size_t r = 0; r < kReplicas; ++r) {
    EXPECT_THAT(got[r], BitwiseEqual(expected[r])) << "replica " << r;
  }
}

void expect_all_different(const std::vector<at::Tensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_FALSE(at::equal(tensors[i], tensors[j])) << i << " and " << j;
    }
  }
}

struct Operator {
  const char* name;
  Draw draw;
};

class ReplicaGeneratorsOperatorTest : public ::testing::TestWithParam<Operator> {};

TEST_P(ReplicaGeneratorsOperatorTest, RepeatsWithThreadsThatRace) {
  ReplicaGenerators generators(kReplicas);
  seed_default(7);
  draw_number();
  const at::Tensor after_one_draw = generator_state();
  std::vector<at::Tensor> first;
  for (int i = 0; i < kRepeats; ++i) {
    seed_default(7);
    const auto drawn = run(generators, GetParam().draw);
    EXPECT_THAT(generator_state(), BitwiseEqual(after_one_draw));
    if (i == 0) {
      first = drawn;
      expect_all_different(first);
    }
    expect_equal(drawn, first);
  }
}

at::Tensor thirty() { return at::ones({30, 2, 2}); }

at::Tensor run_lstm() {
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(4, 4).num_layers(2).dropout(0.5));
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : lstm->parameters()) {
    parameter.fill_(0.25);
  }
  return std::get<0>(lstm->forward(at::ones({9, 8, 4})));
}

INSTANTIATE_TEST_SUITE_P(
    Operators, ReplicaGeneratorsOperatorTest,
    ::testing::Values(
        Operator{"rand", [] { return at::rand({9}); }},
        Operator{"randn", [] { return at::randn({9}); }},
        Operator{"randint", [] { return at::randint(1000, {9}); }},
        Operator{"randperm", [] { return at::randperm(30); }},
        Operator{"rand_like", [] { return at::rand_like(thirty()); }},
        Operator{"multinomial", [] { return at::multinomial(at::ones({100}), 20); }},
        Operator{"normal", [] { return at::normal(thirty(), 2.0); }},
        Operator{"poisson", [] { return at::poisson(at::full({30}, 9.0)); }},
        Operator{"bernoulli", [] { return at::bernoulli(at::full({99}, 0.5)); }},
        Operator{"bernoulli_", [] { return at::ones({99}).bernoulli_(0.5); }},
        Operator{"dropout", [] { return at::dropout(thirty(), 0.5, true); }},
        Operator{"feature_dropout", [] { return at::feature_dropout(thirty(), 0.5, true); }},
        Operator{"alpha_dropout", [] { return at::alpha_dropout(thirty(), 0.5, true); }},
        Operator{"rrelu", [] { return at::rrelu(-thirty(), 0.1, 0.3, true); }},
        Operator{"lstm", run_lstm},
        // Normal numbers come in pairs, and a generator keeps the second for later.
        Operator{"odd_count",
                 [] {
                   return at::cat({at::randn({1}), at::rand({1})});
                 }}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(ReplicaGeneratorsTest, TheOrderOfTheReplicasDoesNotMatter) {
  ReplicaGenerators generators(2);
  seed_default(7);
  generators.begin();
  const at::Tensor first = draw_alone(generators, 0);
  const at::Tensor second = draw_alone(generators, 1);
  seed_default(7);
  generators.begin();
  EXPECT_THAT(draw_alone(generators, 1), BitwiseEqual(second));
  EXPECT_THAT(draw_alone(generators, 0), BitwiseEqual(first));
}

TEST(ReplicaGeneratorsTest, AReplicaGoesOnWhereItWasWithinACall) {
  ReplicaGenerators generators(2);
  generators.begin();
  const at::Tensor first = draw_alone(generators, 0);
  expect_all_different({first, draw_alone(generators, 0), draw_alone(generators, 1)});
}

TEST(ReplicaGeneratorsTest, CallsDrawDifferentNumbers) {
  ReplicaGenerators generators(kReplicas);
  std::vector<at::Tensor> all = run(generators, draw);
  for (const at::Tensor& drawn : run(generators, draw)) {
    all.push_back(drawn);
  }
  expect_all_different(all);
}

TEST(ReplicaGeneratorsTest, ACallThatDrawsNothingLeavesTheDefaultGeneratorAsItWas) {
  ReplicaGenerators generators(kReplicas);
  const at::Tensor before = generator_state();
  run(generators, [] { return at::ones({3}).neg_(); });
  run(generators, [] { return at::dropout(at::ones({3}), 0.5, /*train=*/false); });
  EXPECT_THAT(generator_state(), BitwiseEqual(before));
}

TEST(ReplicaGeneratorsTest, AStateThatIsPutBackRepeatsTheRun) {
  ReplicaGenerators generators(kReplicas);
  run(generators, draw);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor saved = generator_state();
  const auto first = run(generators, draw);
  const auto second = run(generators, draw);
  {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(saved);
  }
  ReplicaGenerators others(kReplicas);
  expect_equal(run(others, draw), first);
  expect_equal(run(generators, draw), second);
}

TEST(ReplicaGeneratorsTest, AGeneratorThatIsGivenIsUsed) {
  ReplicaGenerators generators(kReplicas);
  const at::Tensor before = generator_state();
  const at::Tensor expected = at::rand({5}, at::detail::createCPUGenerator(3));
  for (const at::Tensor& drawn :
       run(generators, [] { return at::rand({5}, at::detail::createCPUGenerator(3)); })) {
    EXPECT_THAT(drawn, BitwiseEqual(expected));
  }
  EXPECT_THAT(generator_state(), BitwiseEqual(before));
}

TEST(ReplicaGeneratorsTest, NestedCallsRepeatToo) {
  const auto nested = [] {
    ReplicaGenerators inner(kReplicas);
    return at::cat(run(inner, draw));
  };
  ReplicaGenerators generators(kReplicas);
  std::vector<at::Tensor> first;
  for (int i = 0; i < kRepeats; ++i) {
    seed_default(7);
    const auto drawn = run(generators, nested);
    if (i == 0) {
      first = drawn;
      expect_all_different(first);
    }
    expect_equal(drawn, first);
  }
}

TEST(ReplicaGeneratorsTest, DrawsInABackwardAreTheReplicasToo) {
  const auto noisy_backward = [] {
    const at::Tensor x = at::ones({4}).requires_grad_();
    x.register_hook([](const at::Tensor& gradient) { return gradient + at::rand_like(gradient); });
    x.sum().backward();
    return x.grad();
  };
  ReplicaGenerators generators(kReplicas);
  seed_default(7);
  const auto first = run(generators, noisy_backward);
  expect_all_different(first);
  seed_default(7);
  expect_equal(run(generators, noisy_backward), first);
}

TEST(ReplicaGeneratorsTest, AfterAScopeThatThrewTheDefaultGeneratorDraws) {
  ReplicaGenerators generators(1);
  seed_default(7);
  const at::Tensor expected = draw();
  seed_default(7);
  try {
    const ReplicaGenerators::Scope scope(generators, 0);
    throw std::runtime_error("no");
  } catch (const std::runtime_error&) {
  }
  EXPECT_THAT(draw(), BitwiseEqual(expected));
}

}  // namespace
}  // namespace lockstep::replicate::internal
