// SPDX-License-Identifier: Apache-2.0
// DevicePolicy in a DataParallel: what each one runs, and what kAutomatic refuses.
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/optim/sgd.h>

#include <atomic>

#include "parallel/data_parallel_fixture.h"

namespace lockstep::parallel {
namespace {

using lockstep::testing::AllClose;
using lockstep::testing::BitwiseEqual;
using lockstep::testing::ThrowsError;

// out = x * weight; counts its calls, over all replicas.
struct CountedImpl : torch::nn::Cloneable<CountedImpl> {
  CountedImpl() { CountedImpl::reset(); }
  void reset() override { weight = register_parameter("weight", at::ones({2}, at::kDouble)); }
  at::Tensor forward(const at::Tensor& x) {
    ++*calls;
    return x * weight;
  }
  std::shared_ptr<std::atomic<int>> calls = std::make_shared<std::atomic<int>>(0);
  at::Tensor weight;
};
TORCH_MODULE(Counted);

class DataParallelPolicyTest : public DataParallelTest {
 protected:
  DataParallelPolicyTest() { module_->to(first()); }
  DataParallelOptions with(DevicePolicy policy) const {
    DataParallelOptions chosen = options();
    chosen.policy = policy;
    return chosen;
  }
  // How many modules take part in a forward.
  int calls_of(DataParallel<CountedImpl>& parallel, int64_t rows = 8) {
    *module_->calls = 0;
    parallel.forward(at::ones({rows, 2}, at::kDouble).to(first())).sum().backward();
    return module_->calls->load();
  }
  int all() const { return static_cast<int>(num_devices()); }

  Counted module_;
};
LOCKSTEP_INSTANTIATE_DATA_PARALLEL(DataParallelPolicyTest);

TEST_P(DataParallelPolicyTest, OneDeviceRunsTheModuleItselfAndMakesNoReplicas) {
  DataParallel parallel(module_, devices(), with(DevicePolicy::kOneDevice));
  EXPECT_EQ(calls_of(parallel), 1);
  EXPECT_EQ(parallel.replicas().size(), 1U);
  EXPECT_EQ(parallel.device_choice(), DeviceChoice::kOneDevice);
  EXPECT_THAT(module_->weight.grad(), BitwiseEqual(at::full_like(module_->weight, 8).detach()));
  EXPECT_THAT(
      [&] { parallel.set_device_choice(DeviceChoice::kReplicas); },
      ThrowsError("[DataParallel] set_device_choice is for DevicePolicy::kAutomatic, but the "
                  "policy is kOneDevice"));
}

TEST_P(DataParallelPolicyTest, AChoiceThatIsSetHoldsFromTheFirstStep) {
  if (num_devices() == 1) {
    GTEST_SKIP() << "one device leaves no choice";
  }
  DataParallel parallel(module_, devices(), with(DevicePolicy::kAutomatic));
  EXPECT_EQ(parallel.device_choice(), DeviceChoice::kUndecided);
  parallel.set_device_choice(DeviceChoice::kOneDevice);
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(calls_of(parallel), 1);
  }
  parallel.set_device_choice(DeviceChoice::kReplicas);
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(calls_of(parallel), all());
  }
}

TEST_P(DataParallelPolicyTest, MeasuringTakesTurnsAndEndsWithAChoiceThatStays) {
  if (num_devices() == 1) {
    GTEST_SKIP() << "one device leaves no choice";
  }
  DataParallel parallel(module_, devices(), with(DevicePolicy::kAutomatic));
  torch::optim::SGD optimizer(parallel.parameters(), 0);
  int with_replicas = 0;
  int on_one_device = 0;
  for (int step = 0; parallel.device_choice() == DeviceChoice::kUndecided; ++step) {
    ASSERT_LT(step, 200);
    const int calls = calls_of(parallel);
    (calls == 1 ? on_one_device : with_replicas) += 1;
    ASSERT_TRUE(calls == 1 || calls == all()) << calls;
    optimizer.step();
  }
  EXPECT_GE(with_replicas, 8);
  EXPECT_GE(on_one_device, 8);
  const int chosen = parallel.device_choice() == DeviceChoice::kReplicas ? all() : 1;
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(calls_of(parallel), chosen);
  }
}

TEST_P(DataParallelPolicyTest, TheGradientsAreTheSameHoweverItIsRun) {
  Mlp net(3, 4, 2);
  fill(*net, 3);
  net->to(first());
  DataParallel parallel(net, devices(), with(DevicePolicy::kAutomatic));
  const at::Tensor x = data({7, 3}, 1);
  const auto gradients = [&](DeviceChoice choice) {
    parallel.set_device_choice(choice);
    parallel.train_step(
        [](MlpImpl& net, const at::Tensor& x) { return net.forward(x).pow(2).mean(); }, x);
    return take_gradients(*net);
  };
  expect_close(gradients(DeviceChoice::kReplicas), gradients(DeviceChoice::kOneDevice));
}

TEST_P(DataParallelPolicyTest, AutomaticRefusesWhatWouldChangeResultsUnlessAllowed) {
  if (num_devices() == 1) {
    GTEST_SKIP() << "one device splits nothing";
  }
  torch::nn::Sequential net(torch::nn::Linear(2, 2), torch::nn::BatchNorm1d(2));
  net->to(first());
  EXPECT_THAT([&] { DataParallel(net, devices(), with(DevicePolicy::kAutomatic)); },
              ThrowsError("BatchNorm1dImpl"));
  DataParallelOptions allowed = with(DevicePolicy::kAutomatic);
  allowed.allow_automatic_to_change_results = true;
  DataParallel(net, devices(), allowed).forward(at::ones({8, 2}).to(first()));
  net->eval();
  DataParallel parallel(net, devices(), with(DevicePolicy::kAutomatic));
  parallel.forward(at::ones({8, 2}).to(first()));
  net->train();
  EXPECT_THAT(
      [&] {
        parallel.forward(at::ones({8, 2}).to(first()));
      },
      ThrowsError("BatchNorm1dImpl"));
}

TEST_P(DataParallelPolicyTest, AutomaticRefusesOutputsWhoseShapeWouldChange) {
  if (num_devices() == 1) {
    GTEST_SKIP() << "one device gives scalars always";
  }
  const auto module = make_function_module(
      2, [](const at::Tensor& w, const at::Tensor& x) { return (x * w).sum(); });
  module->to(first());
  DataParallel parallel(module, devices(), with(DevicePolicy::kAutomatic));
  EXPECT_THAT(
      [&] {
        parallel.forward(data({4, 2}, 1));
      },
      ThrowsError("kAutomatic cannot be used with a forward that returns scalars"));
  EXPECT_THAT(
      [&] {
        data_parallel(module, std::make_tuple(data({4, 2}, 1)), devices(),
                      with(DevicePolicy::kAutomatic));
      },
      ThrowsError("[data_parallel] DevicePolicy::kAutomatic needs steps to measure"));
}

}  // namespace
}  // namespace lockstep::parallel
