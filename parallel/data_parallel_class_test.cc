// SPDX-License-Identifier: Apache-2.0
// DataParallel as an object: what it shares with the module, what it keeps, what it refuses.
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/InferenceMode.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/optim/sgd.h>

#include <atomic>

#include "comm/copy_collectives.h"
#include "parallel/data_parallel_core.h"
#include "parallel/data_parallel_fixture.h"
#include "parallel/typed_call.h"

namespace lockstep::parallel {
namespace {

using lockstep::testing::AllClose;
using lockstep::testing::BitwiseEqual;
using lockstep::testing::ThrowsError;

class DataParallelClassTest : public DataParallelTest {};
LOCKSTEP_INSTANTIATE_DATA_PARALLEL(DataParallelClassTest);

at::Tensor generator_state() { return at::detail::getDefaultCPUGenerator().get_state(); }

// A parameter, a buffer that counts its uses in place, a member that is no tensor; counts how
// often the structure is made.
struct CountingImpl : torch::nn::Cloneable<CountingImpl> {
  explicit CountingImpl(std::shared_ptr<std::atomic<int>> resets) : resets(std::move(resets)) {
    CountingImpl::reset();
  }
  void reset() override {
    ++*resets;
    weight = register_parameter("weight", at::rand({2}, at::kDouble));
    uses = register_buffer("uses", at::zeros({1}, at::kLong));
  }
  at::Tensor forward(const at::Tensor& x) {
    uses.add_(1);
    ++calls;
    return x * weight;
  }

  std::shared_ptr<std::atomic<int>> resets;
  at::Tensor weight, uses;
  int calls = 0;
};
TORCH_MODULE(Counting);

TEST_P(DataParallelClassTest, TheModuleIsTheSameObjectWithTheSameParameters) {
  Mlp net(2, 3, 1);
  net->to(first());
  const DataParallel parallel(net, devices(), options());
  EXPECT_EQ(parallel.module().get(), net.get());
  EXPECT_EQ(parallel->width(), 3);
  EXPECT_EQ(parallel.devices(), devices());
  const auto parameters = parallel.parameters();
  ASSERT_EQ(parameters.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(parameters[i].is_same(net->parameters()[i]));
  }
  const DataParallel from_pointer(net.ptr(), devices(), options());
  EXPECT_EQ(from_pointer.module().get(), net.get());
}

TEST_P(DataParallelClassTest, ASharedLayerIsListedOnceAndSteppedOnce) {
  struct Tied : torch::nn::Cloneable<Tied> {
    Tied() { Tied::reset(); }
    void reset() override {
      first = register_module("first", Scale(2));
      second = register_module("second", first);
    }
    at::Tensor forward(const at::Tensor& x) { return second(first(x)); }
    Scale first{nullptr}, second{nullptr};
  };
  const auto module = std::make_shared<Tied>();
  module->to(first());
  DataParallel parallel(module, devices(), options());
  ASSERT_EQ(module->parameters().size(), 2u);
  ASSERT_EQ(parallel.parameters().size(), 1u);
  torch::optim::SGD optimizer(parallel.parameters(), 0.125);
  const at::Tensor x = at::ones({static_cast<int64_t>(num_devices()), 2}, at::kDouble).to(first());
  parallel.forward(x).mean().backward();
  optimizer.step();
  // The loss is the mean of w0^2 and w1^2: its gradient is w, 1 each.
  EXPECT_THAT(module->first->weight.detach(), BitwiseEqual(at::full({2}, 0.875, x.options())));
}

TEST_P(DataParallelClassTest, EveryStepSeesTheWeightsOfTheLast) {
  torch::nn::Linear linear(torch::nn::LinearOptions(2, 1).bias(false));
  linear->to(first());
  {
    const at::NoGradGuard no_grad;
    linear->weight.copy_(at::tensor({1.0f, 2.0f}).view({1, 2}));
  }
  // The optimizer may be made before the wrapper.
  torch::optim::SGD optimizer(linear->parameters(), 0.1);
  DataParallel parallel(linear, devices(), options());
  const at::Tensor x = at::ones({4, 2}).to(first());
  for (int step = 1; step <= 3; ++step) {
    optimizer.zero_grad();
    parallel.forward(x).sum().backward();
    EXPECT_THAT(linear->weight.grad().cpu(), BitwiseEqual(at::full({1, 2}, 4.0f)));
    optimizer.step();
    EXPECT_THAT(linear->weight.detach().cpu(),
                AllClose(at::tensor({1.0f - 0.4f * step, 2.0f - 0.4f * step}).view({1, 2})));
  }
}

TEST_P(DataParallelClassTest, ReplicasAreMadeOnceOnePerDevice) {
  const auto resets = std::make_shared<std::atomic<int>>(0);
  Counting module(resets);
  module->to(first());
  const size_t made = num_devices() == 1 ? 0 : num_devices();
  *resets = 0;
  DataParallel parallel(module, devices(), options());
  EXPECT_EQ(*resets, static_cast<int>(made));
  EXPECT_EQ(parallel.replicas().size(), num_devices());
  const auto replicas = parallel.replicas();
  for (int step = 0; step < 10; ++step) {
    parallel.forward(at::ones({1 + step, 2}, at::kDouble).to(first())).sum().backward();
  }
  EXPECT_EQ(*resets, static_cast<int>(made));
  EXPECT_EQ(parallel.replicas(), replicas);
}

TEST_P(DataParallelClassTest, CpuReplicasShareParametersAndOwnTheirBuffers) {
  Counting module(std::make_shared<std::atomic<int>>(0));
  module->to(first());
  const DataParallel parallel(module, devices(), options());
  const auto replicas = parallel.replicas();
  for (size_t r = 0; r < replicas.size(); ++r) {
    if (devices()[r] == first()) {
      EXPECT_EQ(replicas[r]->weight.data_ptr(), module->weight.data_ptr());
    }
    EXPECT_EQ(replicas[r]->uses.data_ptr() == module->uses.data_ptr(), r == 0);
    EXPECT_EQ(replicas[r].get() == module.get(), num_devices() == 1);
  }
}

TEST_P(DataParallelClassTest, ReplicasOwnTheirParametersIfAskedTo) {
  Mlp net(2, 3, 1);
  fill(*net, 1);
  net->to(first());
  DataParallelOptions separate = options();
  separate.replicate.share_parameters = false;
  DataParallel parallel(net, devices(), separate);
  const at::Tensor x = data({6, 2}, 1);
  for (int step = 0; step < 3; ++step) {
    parallel.forward(x).sum().backward();
    const auto gradients = take_gradients(*net);
    net->forward(x).sum().backward();
    expect_close(gradients, take_gradients(*net));
    const at::NoGradGuard no_grad;
    net->a->weight.mul_(0.9);
  }
  for (size_t r = 1; r < num_devices(); ++r) {
    EXPECT_NE(parallel.replicas()[r]->a->weight.data_ptr(), net->a->weight.data_ptr());
  }
}

TEST_P(DataParallelClassTest, BufferUpdatesOfTheFirstChunkArriveOthersAndPlainMembersDoNot) {
  Counting module(std::make_shared<std::atomic<int>>(0));
  module->to(first());
  DataParallel parallel(module, devices(), options());
  for (int step = 0; step < 3; ++step) {
    parallel.forward(at::ones({8, 2}, at::kDouble).to(first()));
  }
  EXPECT_EQ(module->uses.item<int64_t>(), 3);
  EXPECT_EQ(module->calls, num_devices() == 1 ? 3 : 0);
}

TEST_P(DataParallelClassTest, ModesFollowTheModule) {
  const auto module = make_function_module(1, [](const at::Tensor&, const at::Tensor& x) {
    return at::full_like(x, at::GradMode::is_enabled());
  });
  module->to(first());
  DataParallel parallel(module, devices(), options());
  for (const bool training : {false, true, false}) {
    module->train(training);
    parallel.forward(data({4, 2}, 1));
    for (const auto& replica : parallel.replicas()) {
      EXPECT_EQ(replica->is_training(), training);
    }
  }
}

TEST_P(DataParallelClassTest, ANoGradForwardIsUntrackedAndHarmsNoOther) {
  const auto grad_mode = std::make_shared<std::atomic<int>>(0);
  const auto module =
      make_function_module(2, [grad_mode](const at::Tensor& w, const at::Tensor& x) {
        *grad_mode += at::GradMode::is_enabled();
        return x * w;
      });
  module->to(first());
  DataParallel parallel(module, devices(), options());
  const at::Tensor x = data({8, 2}, 1);
  EXPECT_TRUE(parallel.forward(x).requires_grad());
  EXPECT_EQ(grad_mode->exchange(0), static_cast<int>(num_devices()));
  {
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(parallel.forward(x).requires_grad());
    EXPECT_EQ(*grad_mode, 0);
  }
  {
    const c10::InferenceMode inference;
    EXPECT_TRUE(parallel.forward(x).is_inference());
  }
  parallel.forward(x).sum().backward();
  EXPECT_THAT(module->weight.grad(), AllClose(x.sum(0), {1e-12, 1e-14}));
}

TEST_P(DataParallelClassTest, RandomStateIsLeftAlone) {
  Counting module(std::make_shared<std::atomic<int>>(0));
  module->to(first());
  const at::Tensor before = generator_state();
  DataParallel parallel(module, devices(), options());
  parallel.forward(at::ones({8, 2}, at::kDouble).to(first())).sum().backward();
  EXPECT_TRUE(at::equal(generator_state(), before));
}

TEST_P(DataParallelClassTest, ASequentialOfLayersWorks) {
  torch::nn::Sequential net(torch::nn::Linear(3, 4), torch::nn::Linear(4, 2));
  net->to(first(), at::kDouble);
  DataParallel parallel(net, devices(), options());
  const at::Tensor x = data({5, 3}, 1);
  parallel.forward(x).sum().backward();
  const auto gradients = take_gradients(*net);
  net->forward(x).sum().backward();
  expect_close(gradients, take_gradients(*net));
}

// --- exact counts ----------------------------------------------------------------------------

TEST_P(DataParallelClassTest, ThreadsDoNotGrowOverAHundredSteps) {
  WorkerPool pool;
  Scale module(2);
  module->to(first());
  const auto core = std::make_shared<internal::DataParallelCore>("test", module.ptr(), devices(),
                                                                 options(), &pool, num_devices());
  const auto run = [&](const internal::ReplicaCall& call) { return core->run(call); };
  const at::Tensor x = data({8, 2}, 1);
  for (int step = 0; step < 100; ++step) {
    internal::run_call<ScaleImpl>("test", num_devices(), run, internal::Forward(), x)
        .sum()
        .backward();
  }
  EXPECT_EQ(pool.num_workers(), static_cast<int64_t>(num_devices()) - 1);
}

TEST_P(DataParallelClassTest, CpuReplicasCostNoMessagesPerStep) {
  comm::CopyCollectives engine;
  DataParallelOptions counted = options();
  counted.replicate.collectives = &engine;
  if (!first().is_cpu() || counted.backward != BackwardEngine::kPerReplica) {
    GTEST_SKIP() << "other engines scatter, gather and reduce";
  }
  Counting module(std::make_shared<std::atomic<int>>(0));
  DataParallel parallel(module, devices(), counted);
  for (int step = 0; step < 10; ++step) {
    parallel.forward(at::ones({8, 2}, at::kDouble)).sum().backward();
  }
  EXPECT_EQ(engine.counters().messages, 0);
  EXPECT_EQ(engine.counters().calls, 0);
}

// --- what is refused -------------------------------------------------------------------------

TEST(DataParallelConstructionTest, NeedsAModuleAndDevices) {
  Scale module(2);
  const std::vector<c10::Device> two(2, c10::Device(c10::kCPU));
  EXPECT_THAT([&] { DataParallel(std::shared_ptr<ScaleImpl>(), two); },
              ThrowsError("[DataParallel] expected a module, got null"));
  EXPECT_THAT([&] { DataParallel(module, {}); }, ThrowsError("[DataParallel] expected"));
  EXPECT_THAT(
      [&] {
        DataParallel(module, {c10::Device("cpu"), c10::Device("cpu:1")});
      },
      ThrowsError("[DataParallel]"));
  EXPECT_THAT(
      [&] {
        DataParallel(module, {c10::Device("cpu"), c10::Device("meta")});
      },
      ThrowsError("[DataParallel] expected devices of one type, got cpu at index 0 and "
                  "meta at index 1"));
}

TEST(DataParallelConstructionTest, NeedsTheModuleOnTheFirstDevice) {
  const auto module = std::make_shared<ElsewhereModule>();
  for (const size_t count : {1, 2}) {
    EXPECT_THAT([&] { DataParallel(module, std::vector(count, c10::Device("cpu"))); },
                ThrowsError("parameter 'weight' is on meta, but the first device of the list is "
                            "cpu"));
  }
}

TEST(DataParallelConstructionTest, RefusesReplicaBackwardElsewhereThanOnTheCpu) {
  Scale module(2);
  DataParallelOptions options;
  options.backward = BackwardEngine::kPerReplica;
  EXPECT_THAT([&] { DataParallel(module, std::vector(2, c10::Device("meta")), options); },
              ThrowsError("[DataParallel] BackwardEngine::kPerReplica is for replicas on the CPU, "
                          "got meta"));
}

TEST(DataParallelConstructionTest, AModuleWithoutCloneIsRefusedByNameWithTheRemedies) {
  struct Bare : torch::nn::Module {
    at::Tensor forward(const at::Tensor& x) { return x; }
  };
  EXPECT_THAT([&] { DataParallel(std::make_shared<Bare>(), std::vector(2, c10::Device("cpu"))); },
              ThrowsError("ReplicateOptions::factory"));
}

}  // namespace
}  // namespace lockstep::parallel
