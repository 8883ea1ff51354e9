// SPDX-License-Identifier: Apache-2.0
#include "lockstep.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <utility>
#include <vector>

namespace lockstep {
namespace {

TEST(UmbrellaTest, OneIncludeReachesEveryLayer) {
  const std::vector<c10::Device> devices = {c10::kCPU, c10::kCPU};
  const at::Tensor ones = at::ones({4, 2});

  EXPECT_EQ(comm::broadcast(ones, devices).size(), 2);
  EXPECT_EQ(autograd_fns::scatter(ones, devices).size(), 2);

  torch::nn::Linear linear(2, 3);
  EXPECT_EQ(replicate::replicate(linear, devices).size(), 2);
  EXPECT_EQ(parallel::data_parallel(linear, ones, devices).size(0), 4);
}

// The network of README.md's example of what forward may take and return.
struct NetImpl : torch::nn::Cloneable<NetImpl> {
  NetImpl() { NetImpl::reset(); }
  void reset() override { linear = register_module("linear", torch::nn::Linear(2, 3)); }
  at::Tensor forward(const at::Tensor& x) { return linear(x); }
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& state,
                                            const at::Tensor& graph, bool flag) {
    TORCH_CHECK(flag && state.size(1) == x.size(0));
    return {linear(x) * graph, state * 2};
  }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(Net);

TEST(UmbrellaTest, ForwardTakesAndReturnsAnything) {
  using parallel::split_along;
  using parallel::to_all_replicas;
  Net net;
  const std::vector<c10::Device> devices = {c10::kCPU, c10::kCPU};
  const at::Tensor x = at::ones({4, 2});
  const at::Tensor y = at::zeros({4, 3});
  const at::Tensor state = at::ones({5, 4});
  const at::Tensor graph = at::ones({3});
  parallel::DataParallelOptions options;
  options.output_dims = {0, 1};
  parallel::DataParallel parallel(net, devices, options);
  // [readme: any_signature]
  auto [output, next] = parallel.forward(x, split_along(state, 1), to_all_replicas(graph), true);
  at::Tensor loss = parallel.train_step(
      [](NetImpl& replica, const at::Tensor& x, const at::Tensor& y) {
        return torch::mse_loss(replica.forward(x), y);
      },
      x, y);  // forward, loss and backward on all devices at once
  // [end]
  EXPECT_TRUE(at::equal(next, state * 2));
  EXPECT_TRUE(at::allclose(output, net->forward(x)));
  EXPECT_TRUE(at::allclose(loss, torch::mse_loss(net->forward(x), y)));
  EXPECT_TRUE(net->linear->weight.grad().defined());
}

}  // namespace
}  // namespace lockstep
