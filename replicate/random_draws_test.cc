// SPDX-License-Identifier: Apache-2.0
#include "replicate/random_draws.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/normal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/rand_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "replicate/test_modules.h"
#include "testing/matchers.h"

namespace lockstep::replicate::internal {
namespace {

using lockstep::testing::AllClose;
using lockstep::testing::BitwiseEqual;
using ::testing::ElementsAre;

const c10::Device kCpu(c10::kCPU);
const c10::Device kMeta(c10::kMeta);

at::Generator seeded(uint64_t seed) { return at::detail::createCPUGenerator(seed); }

// Remembers where it was asked to draw; gives `generator`, if there is one.
struct Recorder : DrawRule {
  at::Generator generator_for(c10::Device device) override {
    asked.push_back(device);
    return generator;
  }
  std::vector<c10::Device> asked;
  at::Generator generator;
};

bool key_is_on() { return c10::impl::tls_is_dispatch_key_included(kDrawKey); }

TEST(DrawRuleScopeTest, EveryOperatorWithAGeneratorIsIntercepted) {
  Recorder rule;
  const DrawRuleScope scope(rule);
  auto& dispatcher = c10::Dispatcher::singleton();
  int count = 0;
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (name.name.rfind("aten::", 0) != 0 || !op.has_value()) {
      continue;
    }
    bool draws = name.name == "aten::native_dropout";
    for (const c10::Argument& argument : op->schema().arguments()) {
      draws = draws || argument.type()->str().find("Generator") != std::string::npos;
    }
    EXPECT_EQ(op->hasKernelForDispatchKey(kDrawKey), draws) << name;
    count += draws ? 1 : 0;
  }
  EXPECT_GT(count, 80);
}

TEST(DrawRuleScopeTest, AnOperatorWithoutAGeneratorGetsTheRules) {
  Recorder rule;
  rule.generator = seeded(5);
  const at::Tensor before = generator_state();
  at::Tensor drawn;
  {
    const DrawRuleScope scope(rule);
    drawn = at::randn({4, 3});
  }
  EXPECT_THAT(drawn, BitwiseEqual(at::randn({4, 3}, seeded(5))));
  EXPECT_THAT(generator_state(), BitwiseEqual(before));
}

TEST(DrawRuleScopeTest, AGivenGeneratorIsLeftAlone) {
  Recorder rule;
  rule.generator = seeded(5);
  const DrawRuleScope scope(rule);
  EXPECT_THAT(at::rand({3}, seeded(6)), BitwiseEqual(at::empty({3}).uniform_(0, 1, seeded(6))));
  EXPECT_THAT(rule.asked, ElementsAre());
}

TEST(DrawRuleScopeTest, AnUndefinedGeneratorCountsAsNone) {
  Recorder rule;
  rule.generator = seeded(5);
  const DrawRuleScope scope(rule);
  EXPECT_THAT(at::rand({3}, at::Generator()), BitwiseEqual(at::rand({3}, seeded(5))));
  rule.generator = {};
  EXPECT_EQ(at::rand({3}, at::Generator()).numel(), 3);
}

TEST(DrawRuleScopeTest, WithoutTheRulesGeneratorTheDefaultOneDraws) {
  Recorder rule;
  const at::Tensor before = generator_state();
  {
    const DrawRuleScope scope(rule);
    at::rand({3});
  }
  EXPECT_THAT(rule.asked, ElementsAre(kCpu));
  EXPECT_THAT(generator_state(), ::testing::Not(BitwiseEqual(before)));
}

TEST(DrawRuleScopeTest, TheRuleIsToldTheDeviceOfTheOperator) {
  Recorder rule;
  const DrawRuleScope scope(rule);
  const at::Tensor here = at::ones({2});
  const at::Tensor meta = at::empty({2}, kMeta);
  const auto asked_by = [&](const auto& draw) {
    rule.asked.clear();
    draw();
    return rule.asked.empty() ? c10::Device(c10::kCUDA) : rule.asked.front();
  };
  EXPECT_EQ(asked_by([] { at::rand({2}); }), kCpu);
  EXPECT_EQ(asked_by([] { at::rand({2}, c10::Device(c10::kCPU, 0)); }), kCpu);
  EXPECT_EQ(asked_by([] { at::rand({2}, kMeta); }), kMeta);
  EXPECT_EQ(asked_by([&] { at::rand_like(here); }), kCpu);
  EXPECT_EQ(asked_by([&] { at::rand_like(meta); }), kMeta);
  EXPECT_EQ(asked_by([&] { at::rand_like(here, at::TensorOptions(kMeta)); }), kMeta);
  EXPECT_EQ(asked_by([&] { at::rand_like(here, at::Generator(), at::TensorOptions(kMeta)); }),
            kMeta);
  EXPECT_EQ(asked_by([] { at::rand({2}, at::Generator(), at::TensorOptions(kMeta)); }), kMeta);
  EXPECT_EQ(asked_by([&] { meta.uniform_(); }), kMeta);
  EXPECT_EQ(asked_by([] { at::randint(5, {2}, kMeta); }), kMeta);
  EXPECT_EQ(asked_by([] { at::randperm(5); }), kCpu);
  EXPECT_EQ(asked_by([] { at::normal(0, 1, {2}); }), kCpu);
  EXPECT_EQ(asked_by([&] { at::normal(here, here); }), kCpu);
}

TEST(DrawRuleScopeTest, FusedDropoutDrawsFromTheRulesGenerator) {
  Recorder rule;
  const DrawRuleScope scope(rule);
  const at::Tensor x = at::ones({3, 7}).requires_grad_();
  const at::Tensor before = generator_state();
  for (const double p : {0.0, 0.25, 1.0}) {
    rule.generator = seeded(5);
    const auto [output, mask] = at::native_dropout(x, p, /*train=*/true);
    const at::Tensor kept = at::empty({3, 7}, at::kBool).bernoulli_(1 - p, seeded(5));
    EXPECT_THAT(mask, BitwiseEqual(kept));
    const at::Tensor expected = p < 1 ? kept / (1 - p) : at::zeros({3, 7});
    EXPECT_THAT(output.detach(), AllClose(expected));
    x.mutable_grad() = at::Tensor();
    output.sum().backward();
    EXPECT_THAT(x.grad(), AllClose(expected));
  }
  EXPECT_THAT(generator_state(), BitwiseEqual(before));
  rule.asked.clear();
  EXPECT_THAT(std::get<0>(at::native_dropout(x, 0.5, /*train=*/false)), BitwiseEqual(x));
  EXPECT_THAT(rule.asked, ElementsAre());
  rule.generator = {};
  at::native_dropout(x, 0.5, std::nullopt);
  EXPECT_THAT(generator_state(), ::testing::Not(BitwiseEqual(before)));
}

TEST(DrawRuleScopeTest, OtherThreadsDrawAsEver) {
  Recorder rule;
  const DrawRuleScope scope(rule);
  const at::Tensor before = generator_state();
  std::thread([] { at::rand({3}); }).join();
  EXPECT_THAT(generator_state(), ::testing::Not(BitwiseEqual(before)));
  EXPECT_THAT(rule.asked, ElementsAre());
}

TEST(DrawRuleScopeTest, AThreadThatTakesOverTheKeyAloneDrawsAsEver) {
  Recorder rule;
  const DrawRuleScope scope(rule);
  const at::ThreadLocalState state;
  const at::Tensor before = generator_state();
  std::thread([&] {
    const at::ThreadLocalStateGuard guard(state);
    EXPECT_TRUE(key_is_on());
    EXPECT_EQ(DrawRuleScope::current(), nullptr);
    EXPECT_THAT(at::rand({3}, seeded(6)), BitwiseEqual(at::empty({3}).uniform_(0, 1, seeded(6))));
    EXPECT_THAT(generator_state(), BitwiseEqual(before));
    at::rand({3});
    EXPECT_THAT(generator_state(), ::testing::Not(BitwiseEqual(before)));
  }).join();
  EXPECT_THAT(rule.asked, ElementsAre());
}

TEST(DrawRuleScopeTest, TheInnermostScopeCounts) {
  Recorder outer;
  Recorder inner;
  const DrawRuleScope outer_scope(outer);
  {
    const DrawRuleScope inner_scope(inner);
    EXPECT_EQ(DrawRuleScope::current(), &inner);
    at::empty({1}).uniform_();
    EXPECT_EQ(inner.asked.size(), 1);
  }
  EXPECT_EQ(DrawRuleScope::current(), &outer);
  EXPECT_EQ(outer.asked.size(), 0);
  at::empty({1}).uniform_();
  EXPECT_EQ(outer.asked.size(), 1);
}

TEST(DrawRuleScopeTest, AnExceptionLeavesTheThreadAsItWas) {
  Recorder rule;
  EXPECT_FALSE(key_is_on());
  try {
    const DrawRuleScope scope(rule);
    EXPECT_TRUE(key_is_on());
    throw std::runtime_error("no");
  } catch (const std::runtime_error&) {
  }
  EXPECT_FALSE(key_is_on());
  EXPECT_EQ(DrawRuleScope::current(), nullptr);
}

TEST(DrawRuleScopeTest, AnOperatorThatThrowsLeavesTheScopeAsItWas) {
  Recorder rule;
  const DrawRuleScope scope(rule);
  EXPECT_THROW(at::empty({1}).uniform_(2, 1), c10::Error);
  EXPECT_TRUE(key_is_on());
  EXPECT_EQ(DrawRuleScope::current(), &rule);
}

TEST(DrawRuleScopeTest, ATensorThatTheRuleLeavesIsReturnedUnchanged) {
  struct Leaving : Recorder {
    bool leaves(const at::Tensor& tensor) override { return tensor.dim() == 1; }
  } rule;
  const DrawRuleScope scope(rule);
  const at::Tensor vector = at::ones({3});
  const int64_t version = vector._version();
  EXPECT_TRUE(vector.normal_().is_same(vector));
  EXPECT_THAT(vector, BitwiseEqual(at::ones({3})));
  EXPECT_EQ(vector._version(), version);
  EXPECT_THAT(rule.asked, ElementsAre());
  EXPECT_THAT(at::ones({3, 1}).normal_(), ::testing::Not(BitwiseEqual(at::ones({3, 1}))));
}

}  // namespace
}  // namespace lockstep::replicate::internal
