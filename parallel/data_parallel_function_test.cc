// SPDX-License-Identifier: Apache-2.0
// The function data_parallel(): replicas for one call.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <atomic>
#include <thread>

#include "parallel/data_parallel_fixture.h"

namespace lockstep::parallel {
namespace {

using lockstep::testing::AllClose;
using lockstep::testing::BitwiseEqual;
using lockstep::testing::ThrowsError;

class DataParallelFunctionTest : public DataParallelTest {};
INSTANTIATE_TEST_SUITE_P(All, DataParallelFunctionTest, ::testing::ValuesIn([] {
                           std::vector<Setting> settings;
                           for (const auto& set : lockstep::testing::all_device_sets()) {
                             settings.push_back({set, BackwardEngine::kAutomatic});
                           }
                           return settings;
                         }()),
                         [](const auto& info) { return info.param.set.name; });

// out = x * weight; counts the structures made and the objects alive.
struct TrackedImpl : torch::nn::Cloneable<TrackedImpl> {
  struct Counts {
    std::atomic<int> resets{0};
    std::atomic<int> alive{0};
  };
  explicit TrackedImpl(std::shared_ptr<Counts> counts) : counts(std::move(counts)) {
    ++this->counts->alive;
    TrackedImpl::reset();
  }
  TrackedImpl(const TrackedImpl& other)
      : torch::nn::Cloneable<TrackedImpl>(other), counts(other.counts), weight(other.weight) {
    ++counts->alive;
  }
  ~TrackedImpl() override { --counts->alive; }
  void reset() override {
    ++counts->resets;
    weight = register_parameter("weight", at::rand({2}, at::kDouble));
  }
  at::Tensor forward(const at::Tensor& x) { return x * weight; }

  std::shared_ptr<Counts> counts;
  at::Tensor weight;
};
TORCH_MODULE(Tracked);

TEST_P(DataParallelFunctionTest, GivesOutputsAndGradientsOfOneDevice) {
  torch::nn::Linear linear(10, 5);
  linear->to(first(), at::kDouble);
  const at::Tensor x = data({20, 10}, 1);
  const at::Tensor output = data_parallel(linear, x, devices());
  EXPECT_EQ(output.device(), first());
  EXPECT_THAT(output.detach(), AllClose(linear->forward(x).detach(), {1e-12, 1e-14}));
  output.pow(2).sum().backward();
  const auto gradients = take_gradients(*linear);
  linear->forward(x).pow(2).sum().backward();
  expect_close(gradients, take_gradients(*linear));
}

TEST_P(DataParallelFunctionTest, TakesPointersAndHolders) {
  Mlp net(2, 3, 1);
  net->to(first());
  const at::Tensor x = data({4, 2}, 1);
  const at::Tensor expected = net->forward(x).detach();
  EXPECT_THAT(data_parallel(net, x, devices()).detach(), AllClose(expected));
  EXPECT_THAT(data_parallel(net.ptr(), x, devices(), first(), 0).detach(), AllClose(expected));
}

TEST_P(DataParallelFunctionTest, TheModuleLearns) {
  torch::nn::Linear linear(torch::nn::LinearOptions(2, 1).bias(false));
  linear->to(first());
  const at::NoGradGuard no_grad;
  linear->weight.copy_(at::tensor({1.0f, 2.0f}).view({1, 2}));
  {
    const at::AutoGradMode grad(true);
    data_parallel(linear, at::ones({4, 2}).to(first()), devices()).sum().backward();
  }
  EXPECT_THAT(linear->weight.grad().cpu(), BitwiseEqual(at::full({1, 2}, 4.0f)));
  linear->weight.sub_(0.1f * linear->weight.grad());
  EXPECT_THAT(linear->weight.detach().cpu(), AllClose(at::tensor({0.6f, 1.6f}).view({1, 2})));
}

TEST_P(DataParallelFunctionTest, MakesNoMoreReplicasThanChunksAndNoneForOne) {
  const auto counts = std::make_shared<TrackedImpl::Counts>();
  Tracked module(counts);
  module->to(first());
  for (int64_t rows = 0; rows <= 12; ++rows) {
    counts->resets = 0;
    const at::Tensor x = data({rows, 2}, 1);
    EXPECT_THAT(data_parallel(module, x, devices()).detach(),
                BitwiseEqual((x * module->weight).detach()));
    const auto chunks = static_cast<int>(std::min<int64_t>(rows, num_devices()));
    EXPECT_EQ(counts->resets, chunks < 2 ? 0 : chunks) << rows << " rows";
  }
}

TEST_P(DataParallelFunctionTest, ReplicasLiveUntilTheGraphIsGone) {
  const auto counts = std::make_shared<TrackedImpl::Counts>();
  Tracked module(counts);
  module->to(first());
  at::Tensor loss = data_parallel(module, data({6, 2}, 1), devices()).sum();
  loss.backward();
  EXPECT_TRUE(module->weight.grad().defined());
  loss.reset();
  EXPECT_EQ(counts->alive, 1) << "only the original is left";
}

TEST_P(DataParallelFunctionTest, RandomStateIsLeftAlone) {
  Tracked module(std::make_shared<TrackedImpl::Counts>());
  module->to(first());
  const at::Tensor before = at::detail::getDefaultCPUGenerator().get_state();
  data_parallel(module, data({6, 2}, 1), devices()).sum().backward();
  EXPECT_TRUE(at::equal(at::detail::getDefaultCPUGenerator().get_state(), before));
}

TEST_P(DataParallelFunctionTest, SplitsAlongTheGivenDimension) {
  const auto module =
      make_function_module(1, [](const at::Tensor& w, const at::Tensor& x) { return x * w; });
  module->to(first());
  const at::Tensor x = data({1, 7}, 1);
  for (const int64_t dim : {1, -1}) {
    EXPECT_THAT(data_parallel(module, x, devices(), std::nullopt, dim).detach(), BitwiseEqual(x));
  }
  EXPECT_THAT([&] { data_parallel(module, x, devices(), std::nullopt, 2); },
              ThrowsError("[data_parallel] expected dim from -2 to 1 for input 0 of shape [1, 7], "
                          "got 2"));
}

TEST_P(DataParallelFunctionTest, ScalarsOfFewRowsAreAVectorToo) {
  const auto module = make_function_module(
      1, [](const at::Tensor& w, const at::Tensor& x) { return (x * w).sum(); });
  module->to(first());
  for (const int64_t rows : {1, 9}) {
    const at::Tensor output = data_parallel(module, data({rows, 2}, 1), devices());
    EXPECT_EQ(output.dim(), num_devices() == 1 ? 0 : 1);
    EXPECT_EQ(output.numel(), std::min<int64_t>(rows, num_devices()));
  }
}

TEST_P(DataParallelFunctionTest, FrozenParametersStayFrozen) {
  Mlp net(2, 3, 1);
  net->to(first());
  net->a->weight.set_requires_grad(false);
  const at::Tensor x = data({6, 2}, 1);
  data_parallel(net, x, devices()).sum().backward();
  EXPECT_FALSE(net->a->weight.grad().defined());
  EXPECT_TRUE(net->b->weight.grad().defined());
  for (at::Tensor& parameter : net->parameters()) {
    parameter.set_requires_grad(false);
  }
  EXPECT_FALSE(data_parallel(net, x, devices()).requires_grad());
}

TEST_P(DataParallelFunctionTest, MayBeCalledFromSeveralThreads) {
  Scale module(2);
  module->to(first());
  const at::Tensor x = at::ones({5, 2}, at::kDouble).to(first());
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int step = 0; step < 20; ++step) {
        data_parallel(module, x, devices()).sum().backward();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_THAT(module->weight.grad(), BitwiseEqual(at::full({2}, 3 * 20 * 5.0, x.options())));
}

TEST(DataParallelFunctionErrorsTest, ADeviceMustBeGivenOrFound) {
  Scale module(2);
  const at::Tensor x = at::ones({2, 2}, at::kDouble);
  EXPECT_THAT([&] { data_parallel(module, x, std::vector<c10::Device>{}); },
              ThrowsError("[data_parallel] expected"));
  if (at::hasCUDA()) {
    GTEST_SKIP() << "devices are found here";
  }
  EXPECT_THAT([&] { data_parallel(module, x); },
              ThrowsError("[data_parallel] no device was given and no CUDA device was found"));
}

TEST(DataParallelFunctionErrorsTest, TheModuleMustBeOnTheFirstDevice) {
  const auto module = std::make_shared<ElsewhereModule>();
  EXPECT_THAT(
      [&] {
        data_parallel(module, at::ones({2, 2}), std::vector(2, c10::Device("cpu")));
      },
      ThrowsError("parameter 'weight' is on meta, but the first device of the list is cpu"));
}

TEST(DataParallelFunctionErrorsTest, InputsThatCannotBeSplitAreRefused) {
  Scale module(2);
  const std::vector<c10::Device> two(2, c10::Device("cpu"));
  EXPECT_THAT([&] { data_parallel(module, at::Tensor(), two); },
              ThrowsError("[data_parallel] input 0 is undefined"));
  EXPECT_THAT([&] { data_parallel(module, at::ones({}), two); },
              ThrowsError("[data_parallel] input 0 has no dimension to be split along"));
}

}  // namespace
}  // namespace lockstep::parallel
