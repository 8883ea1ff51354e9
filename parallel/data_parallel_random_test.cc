// SPDX-License-Identifier: Apache-2.0
// Random numbers in replicas: a run repeats bit for bit, and replicas draw different ones.
#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/modules/dropout.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include "parallel/data_parallel_fixture.h"

namespace lockstep::parallel {
namespace {

using lockstep::testing::BitwiseEqual;

class DataParallelRandomTest : public DataParallelTest {};
LOCKSTEP_INSTANTIATE_DATA_PARALLEL(DataParallelRandomTest);

// A layer, dropout and noise.
struct NoisyImpl : torch::nn::Cloneable<NoisyImpl> {
  NoisyImpl() { NoisyImpl::reset(); }
  void reset() override {
    linear = register_module("linear", torch::nn::Linear(6, 6));
    dropout = register_module("dropout", torch::nn::Dropout(0.5));
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor hidden = dropout(at::tanh(linear(x)));
    return dropout(hidden + at::rand_like(hidden) + at::randn({6}, hidden.options()));
  }
  torch::nn::Linear linear{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(Noisy);

// veScale#52
TEST_P(DataParallelRandomTest, TheSameSeedGivesTheSameRunBitForBit) {
  const at::Tensor x = data({9, 6}, 1);
  std::vector<at::Tensor> first_run;
  for (int run = 0; run < 20; ++run) {
    Noisy net;
    fill(*net, 3);
    net->to(first());
    torch::manual_seed(7);
    DataParallel parallel(net, devices(), options());
    torch::optim::SGD optimizer(parallel.parameters(), 0.1);
    std::vector<at::Tensor> all;
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      const at::Tensor output = parallel.forward(x);
      output.pow(2).sum().backward();
      optimizer.step();
      all.push_back(output.detach());
    }
    parallel.train_step(
        [](NoisyImpl& net, const at::Tensor& x) { return net.forward(x).pow(2).mean(); }, x);
    for (const at::Tensor& parameter : net->parameters()) {
      all.push_back(parameter.detach().clone());
      all.push_back(parameter.grad().clone());
    }
    if (run == 0) {
      first_run = all;
    }
    expect_same_bits(all, first_run);
  }
}

TEST_P(DataParallelRandomTest, MasksOfReplicasAndOfStepsDiffer) {
  torch::nn::Dropout dropout(0.5);
  DataParallel parallel(dropout, devices(), options());
  const at::Tensor x =
      at::ones({static_cast<int64_t>(num_devices()), 256}, at::kDouble).to(first());
  const at::Tensor once = parallel.forward(x);
  for (int64_t r = 1; r < once.size(0); ++r) {
    EXPECT_FALSE(at::equal(once[r], once[r - 1])) << "replica " << r;
  }
  EXPECT_FALSE(at::equal(once, parallel.forward(x)));
}

TEST_P(DataParallelRandomTest, AForwardThatDrawsNothingLeavesTheGeneratorAlone) {
  if (num_devices() == 1) {
    GTEST_SKIP() << "one device draws what the module draws";
  }
  const auto state = [] { return at::detail::getDefaultCPUGenerator().get_state(); };
  Noisy net;
  net->to(first());
  DataParallel parallel(net, devices(), options());
  const at::Tensor x = data({9, 6}, 1);
  const at::Tensor before = state();
  Scale scale(6);
  scale->to(first());
  DataParallel(scale, devices(), options()).forward(x).sum().backward();
  EXPECT_TRUE(at::equal(state(), before));
  parallel.forward(x).sum().backward();
  EXPECT_FALSE(at::equal(state(), before));
}

TEST_P(DataParallelRandomTest, AStateThatIsPutBackRepeatsTheStep) {
  Noisy net;
  net->to(first());
  DataParallel parallel(net, devices(), options());
  if (num_devices() == 1 && !first().is_cpu()) {
    GTEST_SKIP() << "one device draws from its own generator";
  }
  const at::Tensor x = data({9, 6}, 1);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor state = generator.get_state();
  const at::Tensor output = parallel.forward(x).detach();
  EXPECT_FALSE(at::equal(parallel.forward(x), output));
  generator.set_state(state);
  EXPECT_THAT(parallel.forward(x).detach(), BitwiseEqual(output));
}

}  // namespace
}  // namespace lockstep::parallel
