// SPDX-License-Identifier: Apache-2.0
#include "parallel/parallel_apply.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>

#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include "parallel/spin_wait.h"
#include "replicate/replicate.h"
#include "testing/device_sets.h"
#include "testing/matchers.h"
#include "testing/random.h"

namespace lockstep::parallel {
namespace {

using lockstep::testing::BitwiseEqual;
using lockstep::testing::DeviceSet;
using lockstep::testing::random_tensor;
using lockstep::testing::ThrowsError;
using ::testing::HasSubstr;

using Callable = std::function<at::Tensor(const at::Tensor&)>;

class ParallelApplyTest : public ::testing::TestWithParam<DeviceSet> {
 protected:
  const std::vector<c10::Device>& devices() const { return GetParam().devices; }
  size_t count() const { return devices().size(); }

  // One input per replica, on its device, whose first number is the replica's position.
  std::vector<at::Tensor> numbered_inputs() const {
    std::vector<at::Tensor> inputs;
    for (size_t i = 0; i < count(); ++i) {
      inputs.push_back(at::full({2}, static_cast<double>(i), at::kDouble).to(devices()[i]));
    }
    return inputs;
  }

  WorkerPool pool_;
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS(ParallelApplyTest);

TEST_P(ParallelApplyTest, RunsModulesOnTheirInputsInOrder) {
  torch::nn::Linear linear(3, 4);
  linear->to(devices()[0]);
  const auto replicas = replicate::replicate(linear.ptr(), devices());
  std::vector<at::Tensor> inputs;
  for (size_t i = 0; i < count(); ++i) {
    inputs.push_back(at::ones({2, 3}).to(devices()[i]));
  }
  const auto outputs = parallel_apply(pool_, replicas, inputs, devices());
  ASSERT_EQ(outputs.size(), count());
  const at::Tensor expected = linear->forward(inputs[0]);
  for (size_t i = 0; i < count(); ++i) {
    EXPECT_EQ(outputs[i].device(), devices()[i]);
    EXPECT_TRUE(outputs[i].requires_grad());
    EXPECT_THAT(outputs[i].detach(), BitwiseEqual(expected.detach()));
  }
}

TEST_P(ParallelApplyTest, RunsAllReplicasAtTheSameTimeWhateverTheThreadCount) {
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  internal::Barrier barrier(static_cast<int64_t>(count()));
  const std::vector<Callable> replicas(count(), [&](const at::Tensor& x) {
    barrier.arrive_and_wait();
    return x + 1;
  });
  const auto outputs = parallel_apply(pool_, replicas, numbered_inputs(), devices());
  for (size_t i = 0; i < count(); ++i) {
    EXPECT_EQ(outputs[i][0].item<double>(), static_cast<double>(i) + 1);
  }
  at::set_num_threads(before);
}

TEST_P(ParallelApplyTest, TheFirstReplicaRunsOnTheCallingThread) {
  std::vector<std::thread::id> threads(count());
  const std::vector<Callable> replicas(count(), [&](const at::Tensor& x) {
    threads[static_cast<size_t>(x[0].item<double>())] = std::this_thread::get_id();
    return x;
  });
  const auto outputs = parallel_apply(pool_, replicas, numbered_inputs(), devices());
  EXPECT_EQ(threads[0], std::this_thread::get_id());
  EXPECT_EQ(pool_.num_workers(), static_cast<int64_t>(count()) - 1);
}

TEST_P(ParallelApplyTest, ReplicasSeeTheCallersGradAndInferenceMode) {
  const auto record = [&] {
    const std::vector<Callable> replicas(count(), [](const at::Tensor& x) {
      return at::full({1}, at::GradMode::is_enabled() + 2 * c10::InferenceMode::is_enabled(),
                      x.options());
    });
    std::vector<double> seen;
    for (const at::Tensor& output : parallel_apply(pool_, replicas, numbered_inputs(), devices())) {
      seen.push_back(output.item<double>());
    }
    return seen;
  };
  EXPECT_EQ(record(), std::vector<double>(count(), 1));
  {
    const at::NoGradGuard no_grad;
    EXPECT_EQ(record(), std::vector<double>(count(), 0));
  }
  const c10::InferenceMode inference;
  EXPECT_EQ(record(), std::vector<double>(count(), 2));
}

TEST_P(ParallelApplyTest, ReplicasSeeTheCallersAutocast) {
  const std::vector<Callable> replicas(count(), [](const at::Tensor& x) { return x.mm(x); });
  std::vector<at::Tensor> inputs;
  for (const c10::Device device : devices()) {
    inputs.push_back(at::ones({2, 2}).to(device));
  }
  const c10::DeviceType type = devices()[0].type();
  const at::ScalarType before = at::autocast::get_autocast_dtype(type);
  at::autocast::set_autocast_enabled(type, true);
  at::autocast::set_autocast_dtype(type, at::kHalf);
  const auto outputs = parallel_apply(pool_, replicas, inputs, devices());
  at::autocast::clear_cache();
  at::autocast::set_autocast_dtype(type, before);
  at::autocast::set_autocast_enabled(type, false);
  for (const at::Tensor& output : outputs) {
    EXPECT_EQ(output.scalar_type(), at::kHalf);
  }
}

TEST_P(ParallelApplyTest, AnInputMayBeATupleOfAllArguments) {
  using Inputs = std::tuple<at::Tensor, double, std::vector<at::Tensor>>;
  std::vector<Inputs> inputs;
  for (const at::Tensor& x : numbered_inputs()) {
    inputs.emplace_back(x, 2.0, std::vector<at::Tensor>{x, x});
  }
  auto function = [](const at::Tensor& x, double factor, const std::vector<at::Tensor>& more) {
    return x * factor + more[0] + more[1];
  };
  const std::vector<decltype(function)> replicas(count(), function);
  // No devices: found in the tuples.
  const auto outputs = parallel_apply(pool_, replicas, inputs);
  for (size_t i = 0; i < count(); ++i) {
    EXPECT_EQ(outputs[i][1].template item<double>(), 4.0 * static_cast<double>(i));
  }
}

TEST_P(ParallelApplyTest, AResultMayBeOfAnyType) {
  using Result = std::tuple<std::string, std::optional<at::Tensor>, at::Tensor>;
  auto function = [](const at::Tensor& x) {
    return Result{"text", x[0].item<double>() == 0 ? std::optional(x) : std::nullopt, at::Tensor()};
  };
  const std::vector<decltype(function)> replicas(count(), function);
  const std::vector<Result> outputs = parallel_apply(pool_, replicas, numbered_inputs(), devices());
  for (size_t i = 0; i < count(); ++i) {
    EXPECT_EQ(std::get<0>(outputs[i]), "text");
    EXPECT_EQ(std::get<1>(outputs[i]).has_value(), i == 0);
    EXPECT_FALSE(std::get<2>(outputs[i]).defined());
  }
}

TEST_P(ParallelApplyTest, TensorsMadeElsewhereEndOnTheReplicasDevice) {
  const std::vector<Callable> replicas(count(), [](const at::Tensor& x) {
    return at::full({5}, x[0].item<double>(), at::kInt);  // on the CPU
  });
  const auto outputs = parallel_apply(pool_, replicas, numbered_inputs(), devices());
  for (size_t i = 0; i < count(); ++i) {
    EXPECT_EQ(outputs[i].device(), devices()[i]);
    EXPECT_EQ(outputs[i][4].item<int>(), static_cast<int>(i));
  }
}

TEST_P(ParallelApplyTest, TheDeviceIsThatOfTheFirstTensorInTheInput) {
  using Input = std::vector<std::vector<at::Tensor>>;
  std::vector<Input> inputs;
  for (const at::Tensor& x : numbered_inputs()) {
    inputs.push_back({{}, {at::Tensor(), x}});
  }
  auto function = [](const Input& input) { return input[1][1]; };
  const std::vector<decltype(function)> replicas(count(), function);
  const auto outputs = parallel_apply(pool_, replicas, inputs);
  for (size_t i = 0; i < count(); ++i) {
    EXPECT_EQ(outputs[i].device(), devices()[i]);
  }
}

TEST_P(ParallelApplyTest, AnInputWithoutTensorNeedsDevices) {
  std::vector<std::vector<at::Tensor>> inputs(count(), {at::ones({1})});
  inputs.back().clear();
  auto function = [](const std::vector<at::Tensor>&) { return at::ones({1}); };
  const std::vector<decltype(function)> replicas(count(), function);
  EXPECT_THAT([&] { parallel_apply(pool_, replicas, inputs); },
              ThrowsError("[parallel_apply] the input of replica " + std::to_string(count() - 1) +
                          " holds no tensor to tell its device from: pass the devices"));
  EXPECT_EQ(parallel_apply(pool_, replicas, inputs, devices()).size(), count());
}

TEST_P(ParallelApplyTest, ListsMustAgreeInLength) {
  const std::vector<Callable> replicas(count(), [](const at::Tensor& x) { return x; });
  std::vector<at::Tensor> inputs = numbered_inputs();
  inputs.push_back(inputs[0]);
  const std::string number = std::to_string(count());
  EXPECT_THAT([&] { parallel_apply(pool_, replicas, inputs, devices()); },
              ThrowsError("[parallel_apply] expected an input for each of " + number));
  inputs.pop_back();
  auto places = devices();
  places.push_back(places[0]);
  EXPECT_THAT([&] { parallel_apply(pool_, replicas, inputs, places); },
              ThrowsError("[parallel_apply] expected a device for each of " + number));
}

TEST_P(ParallelApplyTest, TheLowestReplicaThatThrowsIsRethrownWithItsType) {
  const std::vector<Callable> replicas(count(), [](const at::Tensor& x) -> at::Tensor {
    TORCH_CHECK_INDEX(false, "bad row ", x[0].item<double>());
    return x;
  });
  for (int repeat = 0; repeat < 20; ++repeat) {
    try {
      parallel_apply(pool_, replicas, numbered_inputs(), devices());
      FAIL() << "nothing was thrown";
    } catch (const c10::IndexError& error) {
      EXPECT_THAT(error.what(), HasSubstr("bad row 0"));
      EXPECT_THAT(error.what(), HasSubstr("in replica 0 of " + std::to_string(count()) + " on " +
                                          devices()[0].str()));
    }
    ASSERT_TRUE(last_failure().has_value());
    EXPECT_EQ(last_failure()->replica, 0);
    ASSERT_EQ(last_failure()->others.size(), count() - 1);
    for (size_t i = 1; i < count(); ++i) {
      const ReplicaFailure& other = last_failure()->others[i - 1];
      EXPECT_EQ(other.replica, static_cast<int64_t>(i));
      EXPECT_EQ(other.device, devices()[i]);
      EXPECT_THAT(other.message, HasSubstr("bad row " + std::to_string(i)));
    }
  }
}

TEST_P(ParallelApplyTest, OtherExceptionsAreUnchangedAndTheNextCallWorks) {
  std::atomic<bool> fails{true};
  const std::vector<Callable> replicas(count(), [&](const at::Tensor& x) {
    if (fails) {
      throw std::domain_error("not here");
    }
    return x;
  });
  try {
    parallel_apply(pool_, replicas, numbered_inputs(), devices());
    FAIL() << "nothing was thrown";
  } catch (const std::domain_error& error) {
    EXPECT_STREQ(error.what(), "not here");
  }
  fails = false;
  EXPECT_EQ(parallel_apply(pool_, replicas, numbered_inputs(), devices()).size(), count());
}

// A module whose forward takes nothing.
struct WeightImpl : torch::nn::Cloneable<WeightImpl> {
  WeightImpl() { WeightImpl::reset(); }
  void reset() override { weight = register_parameter("weight", at::ones({3})); }
  at::Tensor forward() { return weight * 1; }
  at::Tensor weight;
};
TORCH_MODULE(Weight);

TEST_P(ParallelApplyTest, AModuleWithoutInputsGivesOneResultPerReplica) {
  Weight module;
  module->to(devices()[0]);
  const auto replicas = replicate::replicate(module.ptr(), devices());
  const auto outputs =
      parallel_apply(pool_, replicas, std::vector<std::tuple<>>(count()), devices());
  ASSERT_EQ(outputs.size(), count());
  at::Tensor total = outputs[0].cpu();
  for (size_t i = 1; i < count(); ++i) {
    total = total + outputs[i].cpu();
  }
  total.sum().backward();
  EXPECT_THAT(module->weight.grad(),
              BitwiseEqual(at::full({3}, static_cast<float>(count()), module->weight.options())));
}

}  // namespace
}  // namespace lockstep::parallel
