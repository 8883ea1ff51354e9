// SPDX-License-Identifier: Apache-2.0
// A small convolutional network with BatchNorm, trained by data parallelism on the device once and
// twice, and by the same chunks one after another on the plain module.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <vector>

#include "comm/scatter.h"
#include "parallel/data_parallel.h"
#include "testing/matchers.h"
#include "testing/random.h"
#include "tools/gpu_check/subject.h"

namespace lockstep::gpu_check {
namespace {

using ::lockstep::testing::AllClose;
using ::lockstep::testing::random_tensor;
using ::lockstep::testing::Tolerance;

constexpr Tolerance kClose{1e-9, 1e-10};  // of doubles, summed in other orders

// The device once, and twice.
class GpuDataParallelTest : public ::testing::TestWithParam<size_t> {
 protected:
  static torch::nn::Sequential make_network() {
    torch::nn::Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3)),
                              torch::nn::BatchNorm2d(8), torch::nn::Functional(at::relu),
                              torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 4, 3)),
                              torch::nn::Flatten(), torch::nn::Linear(4 * 4 * 4, 5));
    uint64_t seed = 100;
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : net->parameters()) {
      parameter.copy_(random_tensor(parameter.sizes(), seed++) * 0.3);
    }
    net->to(device(), at::kDouble);
    return net;
  }
  static at::Tensor batch(int step) { return random_tensor({9, 3, 8, 8}, 1 + step).to(device()); }
  static at::Tensor loss(const at::Tensor& output) { return output.pow(2).sum(); }

  static std::vector<at::Tensor> take_gradients(const torch::nn::Sequential& net) {
    std::vector<at::Tensor> gradients;
    for (at::Tensor& parameter : net->parameters()) {
      gradients.push_back(parameter.grad());
      parameter.mutable_grad() = at::Tensor();
    }
    return gradients;
  }

  std::vector<c10::Device> devices() const { return {GetParam(), device()}; }

  // On the plain module, whose BatchNorm sees each chunk, as replicas' do.
  std::vector<at::Tensor> serial_gradients(const torch::nn::Sequential& net,
                                           const at::Tensor& x) const {
    const auto sizes = comm::even_sizes(x.size(0), static_cast<int64_t>(GetParam()));
    for (const at::Tensor& chunk : x.split_with_sizes(sizes)) {
      loss(net.ptr()->forward(chunk)).backward();
    }
    return take_gradients(net);
  }

  static void expect_close(const std::vector<at::Tensor>& actual,
                           const std::vector<at::Tensor>& expected) {
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      EXPECT_EQ(actual[i].device(), device()) << "parameter " << i;
      EXPECT_THAT(actual[i], AllClose(expected[i], kClose)) << "parameter " << i;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Device, GpuDataParallelTest, ::testing::Values(1, 2),
                         [](const auto& info) { return info.param == 1 ? "Once" : "Twice"; });

TEST_P(GpuDataParallelTest, TheFunctionGivesOutputsAndGradientsOfThePlainModule) {
  const torch::nn::Sequential net = make_network();
  const torch::nn::Sequential plain = make_network();
  const at::Tensor output = parallel::data_parallel(net, batch(0), devices());
  EXPECT_EQ(output.device(), device());
  loss(output).backward();
  expect_close(take_gradients(net), serial_gradients(plain, batch(0)));
}

TEST_P(GpuDataParallelTest, TheObjectTrainsAsThePlainModule) {
  const torch::nn::Sequential net = make_network();
  const torch::nn::Sequential plain = make_network();
  parallel::DataParallel parallel(net, devices());
  for (int step = 0; step < 5; ++step) {
    loss(parallel.forward(batch(step))).backward();
    const auto gradients = take_gradients(net);
    expect_close(gradients, serial_gradients(plain, batch(step)));
    const at::NoGradGuard no_grad;
    for (const torch::nn::Sequential& each : {net, plain}) {
      const auto parameters = each->parameters();
      for (size_t i = 0; i < parameters.size(); ++i) {
        parameters[i].sub_(gradients[i], 1e-4);
      }
    }
  }
}

TEST_P(GpuDataParallelTest, StatisticsAreThoseOfTheFirstChunk) {
  const torch::nn::Sequential net = make_network();
  const torch::nn::Sequential plain = make_network();
  parallel::DataParallel parallel(net, devices());
  parallel.forward(batch(0));
  plain.ptr()->forward(
      batch(0).narrow(0, 0, comm::even_sizes(9, static_cast<int64_t>(GetParam()))[0]));
  const auto expected = plain->named_buffers();
  for (const auto& buffer : net->named_buffers()) {
    EXPECT_THAT(buffer.value(), AllClose(expected[buffer.key()], kClose)) << buffer.key();
  }
}

TEST_P(GpuDataParallelTest, TheInputGetsItsGradient) {
  torch::nn::Sequential net = make_network();
  net->eval();
  const at::Tensor x = batch(0).requires_grad_();
  const at::Tensor plain = batch(0).requires_grad_();
  loss(parallel::data_parallel(net, x, devices())).backward();
  loss(net.ptr()->forward(plain)).backward();
  EXPECT_THAT(x.grad(), AllClose(plain.grad(), kClose));
}

}  // namespace
}  // namespace lockstep::gpu_check
