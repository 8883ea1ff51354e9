// SPDX-License-Identifier: Apache-2.0
// What DataParallel does when replicas throw, in forward and in backward.
#include <torch/csrc/autograd/custom_function.h>

#include <atomic>
#include <stdexcept>

#include "parallel/data_parallel_fixture.h"

namespace lockstep::parallel {
namespace {

using lockstep::testing::BitwiseEqual;
using lockstep::testing::ThrowsError;
using ::testing::HasSubstr;

class DataParallelFailuresTest : public DataParallelTest {
 protected:
  // As many rows as devices, row i filled with i + 1.
  at::Tensor rows() const {
    const auto count = static_cast<int64_t>(num_devices());
    return at::arange(1, count + 1, at::kDouble).view({count, 1}).expand({count, 2}).to(first());
  }
  std::string of_all() const { return " of " + std::to_string(num_devices()) + " on "; }
};
LOCKSTEP_INSTANTIATE_DATA_PARALLEL(DataParallelFailuresTest);

// Calls `fail` with the chunk's number, from 1, in forward.
std::shared_ptr<FunctionModule> failing_module(const std::function<void(int)>& fail) {
  return make_function_module(2, [fail](const at::Tensor& w, const at::Tensor& x) {
    fail(static_cast<int>(x[0][0].item<double>()));
    return x * w;
  });
}

TEST_P(DataParallelFailuresTest, TheLowestReplicasErrorIsThrownWithItsTypeAndPlace) {
  if (num_devices() == 1) {
    GTEST_SKIP() << "a single device calls the module itself";
  }
  const auto module = failing_module([](int) { TORCH_CHECK_VALUE(false, "odd chunk"); });
  module->to(first());
  DataParallel parallel(module, devices(), options());
  for (int repeat = 0; repeat < 20; ++repeat) {
    try {
      parallel.forward(rows());
      FAIL() << "nothing was thrown";
    } catch (const c10::ValueError& error) {
      EXPECT_THAT(error.what(), HasSubstr("odd chunk"));
      EXPECT_THAT(error.what(), HasSubstr("in replica 0" + of_all() + first().str()));
    }
    ASSERT_TRUE(last_failure().has_value());
    EXPECT_EQ(last_failure()->replica, 0);
    EXPECT_EQ(last_failure()->others.size(), num_devices() - 1);
  }
}

TEST_P(DataParallelFailuresTest, AnythingThrownArrivesUnchanged) {
  const auto module = failing_module([](int chunk) { throw chunk; });
  module->to(first());
  DataParallel parallel(module, devices(), options());
  try {
    parallel.forward(rows());
    FAIL() << "nothing was thrown";
  } catch (int chunk) {
    EXPECT_EQ(chunk, 1);
  }
}

TEST_P(DataParallelFailuresTest, TheOtherReplicasEndBeforeTheErrorIsThrown) {
  const auto ended = std::make_shared<std::atomic<int>>(0);
  const auto module = failing_module([ended](int chunk) {
    ++*ended;
    if (chunk == 1) {
      throw std::length_error("first");
    }
  });
  module->to(first());
  DataParallel parallel(module, devices(), options());
  EXPECT_THROW(parallel.forward(rows()), std::length_error);
  EXPECT_EQ(*ended, static_cast<int>(num_devices()));
}

TEST_P(DataParallelFailuresTest, TheNextCallWorks) {
  const auto fails = std::make_shared<std::atomic<bool>>(true);
  const auto module = failing_module([fails](int) { TORCH_CHECK(!*fails, "not yet"); });
  module->to(first());
  DataParallel parallel(module, devices(), options());
  EXPECT_THAT([&] { parallel.forward(rows()); }, ThrowsError("not yet"));
  EXPECT_FALSE(module->weight.grad().defined());
  *fails = false;
  parallel.forward(rows()).sum().backward();
  EXPECT_THAT(module->weight.grad(), BitwiseEqual(rows().sum(0)));
}

// The identity, whose backward fails unless the mean gradient is `spared`. On several devices it
// may still run when the error has been thrown, so what it reads is atomic.
struct FailInBackward : torch::autograd::Function<FailInBackward> {
  static std::atomic<bool> fails;
  static std::atomic<double> spared;
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& gradients) {
    const double value = gradients[0].mean().item<double>();
    TORCH_CHECK_INDEX(!fails || value == spared, "bad gradient ", value);
    return {gradients[0]};
  }
};
std::atomic<bool> FailInBackward::fails{false};
std::atomic<double> FailInBackward::spared{0};

TEST_P(DataParallelFailuresTest, AnErrorInBackwardLeavesGradientsAloneAndNamesTheReplica) {
  const auto module = make_function_module(
      2, [](const at::Tensor& w, const at::Tensor& x) { return FailInBackward::apply(x * w); });
  module->to(first());
  DataParallel parallel(module, devices(), options());
  // Every replica fails but the first; with one device, that one.
  FailInBackward::spared = num_devices() == 1 ? 0 : 1;
  FailInBackward::fails = true;
  try {
    parallel.forward(rows()).backward(rows());
    FAIL() << "nothing was thrown";
  } catch (const c10::IndexError& error) {
    EXPECT_THAT(error.what(), HasSubstr("bad gradient"));
    if (GetParam().engine == BackwardEngine::kPerReplica) {
      EXPECT_THAT(error.what(), HasSubstr("bad gradient 2"));
      EXPECT_THAT(error.what(), HasSubstr("in replica 1" + of_all() + "cpu"));
      EXPECT_EQ(last_failure()->replica, 1);
      EXPECT_EQ(last_failure()->others.size(), num_devices() - 2);
    }
  }
  EXPECT_FALSE(module->weight.grad().defined());

  FailInBackward::fails = false;
  parallel.forward(rows()).sum().backward();
  EXPECT_THAT(module->weight.grad(), BitwiseEqual(rows().sum(0)));
}

TEST_P(DataParallelFailuresTest, AForwardFromInsideItsOwnReplicaIsAnError) {
  if (num_devices() == 1) {
    GTEST_SKIP() << "a single device calls the module itself";
  }
  std::function<at::Tensor(const at::Tensor&)> again;
  const auto module = make_function_module(
      2, [&again](const at::Tensor&, const at::Tensor& x) { return again(x); });
  module->to(first());
  DataParallel parallel(module, devices(), options());
  again = [&](const at::Tensor& x) { return parallel.forward(x); };
  EXPECT_THAT([&] { parallel.forward(rows()); },
              ThrowsError("[DataParallel] forward was called from inside the forward of one of "
                          "its own replicas"));
  again = [](const at::Tensor& x) { return x * 1.0; };
  EXPECT_THAT(parallel.forward(rows()), BitwiseEqual(rows()));
}

TEST_P(DataParallelFailuresTest, AReplicaUsedByHandIsNoSourceOfGradients) {
  if (GetParam().engine != BackwardEngine::kPerReplica) {
    GTEST_SKIP() << "the other engine connects replicas to the original";
  }
  Scale module(2);
  DataParallel parallel(module, devices(), options());
  EXPECT_THAT([&] { parallel.replicas()[1]->forward(rows()).sum().backward(); },
              ThrowsError("a gradient left a replica outside of its own backward"));
}

}  // namespace
}  // namespace lockstep::parallel
