// SPDX-License-Identifier: Apache-2.0
#include "replicate/no_draws_scope.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/init.h>

#include <functional>
#include <thread>
#include <vector>

#include "replicate/test_modules.h"
#include "testing/matchers.h"

namespace lockstep::replicate::internal {
namespace {

using lockstep::testing::BitwiseEqual;
using ::testing::Not;

at::Tensor parameter() { return at::ones({4, 4}).requires_grad_(); }

class NoDrawsScopeTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_THAT(generator_state(), BitwiseEqual(before_)); }

  const at::Tensor before_ = generator_state();
  const at::NoGradGuard no_grad_;
};

TEST_F(NoDrawsScopeTest, ParametersStayAsTheyAre) {
  const NoDrawsScope scope;
  EXPECT_FALSE(scope.has_skipped());
  for (const auto& fill : std::vector<std::function<at::Tensor(at::Tensor)>>{
           [](const at::Tensor& t) { return t.uniform_(2, 3); },
           [](const at::Tensor& t) { return t.normal_(9, 2); },
           [](const at::Tensor& t) { return t.bernoulli_(0.5); },
           [](const at::Tensor& t) {
             return t.bernoulli_(at::full({4, 4}, 0.5));
           },
           [](const at::Tensor& t) { return t.random_(2, 9); },
           [](const at::Tensor& t) { return t.random_(9); },
           [](const at::Tensor& t) { return t.random_(); },
           [](const at::Tensor& t) { return t.exponential_(); },
           [](const at::Tensor& t) { return t.geometric_(0.5); },
           [](const at::Tensor& t) { return t.log_normal_(); },
           [](const at::Tensor& t) { return t.cauchy_(); },
           [](const at::Tensor& t) { return torch::nn::init::kaiming_uniform_(t); },
           [](const at::Tensor& t) { return torch::nn::init::xavier_normal_(t); },
           [](const at::Tensor& t) {
             return t.normal_(0, 1, at::detail::getDefaultCPUGenerator());
           }}) {
    const at::Tensor tensor = parameter();
    const int64_t version = tensor._version();
    EXPECT_TRUE(fill(tensor).is_same(tensor));
    EXPECT_THAT(tensor, BitwiseEqual(at::ones({4, 4}).requires_grad_()));
    EXPECT_EQ(tensor._version(), version);
  }
  EXPECT_TRUE(scope.has_skipped());
}

TEST_F(NoDrawsScopeTest, OtherTensorsAreDrawnTheSameWayEachTime) {
  const auto draw_all = [] {
    const NoDrawsScope scope;
    return std::vector<at::Tensor>{at::randn({4}), at::empty({4}).normal_(), at::randint(9, {4}),
                                   torch::nn::init::orthogonal_(parameter())};
  };
  const auto first = draw_all();
  const auto second = draw_all();
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_THAT(second[i], BitwiseEqual(first[i])) << i;
  }
  EXPECT_THAT(first[0], Not(BitwiseEqual(first[1])));
  const at::Tensor square = first[3].matmul(first[3].t());
  EXPECT_THAT(square.diag(), lockstep::testing::AllClose(at::ones({4}), {1e-5, 1e-5}));
}

TEST_F(NoDrawsScopeTest, GeneratorsThatAreGivenStayAsTheyWere) {
  const at::Generator own = at::detail::createCPUGenerator(3);
  const NoDrawsScope scope;
  const at::Tensor before = own.get_state();
  at::rand({4}, own);
  at::empty({4}).normal_(0, 1, own);
  parameter().normal_(0, 1, own);
  at::rand({4}, at::detail::getDefaultCPUGenerator());
  EXPECT_THAT(own.get_state(), BitwiseEqual(before));
}

TEST_F(NoDrawsScopeTest, ALoopThatWaitsForValuesThatFitEnds) {
  const NoDrawsScope scope;
  const at::Tensor one = parameter();
  const at::Tensor other = parameter();
  int num_times = 0;
  do {
    ASSERT_LT(++num_times, 100);
    one.normal_();
    other.uniform_(0, 2);
  } while (one.lt(other).sum().item<int64_t>() != 16 && one.eq(1).any().item<bool>());
  EXPECT_THAT(one, Not(BitwiseEqual(parameter())));
}

TEST_F(NoDrawsScopeTest, ParametersAreDrawnOnRequest) {
  const NoDrawsScope scope(NoDrawsScope::Initialisation::kDrawn);
  EXPECT_THAT(parameter().uniform_(2, 3), Not(BitwiseEqual(parameter())));
  EXPECT_FALSE(scope.has_skipped());
}

TEST_F(NoDrawsScopeTest, AnotherThreadsDrawsAreDrawnAndStayDrawn) {
  at::Tensor after;
  {
    const NoDrawsScope scope;
    std::thread([&] {
      EXPECT_THAT(parameter().detach().uniform_(), Not(BitwiseEqual(at::ones({4, 4}))));
      after = generator_state();
    }).join();
  }
  EXPECT_THAT(generator_state(), BitwiseEqual(after));
  EXPECT_THAT(after, Not(BitwiseEqual(before_)));
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_state(before_);
}

}  // namespace
}  // namespace lockstep::replicate::internal
