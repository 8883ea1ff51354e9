// SPDX-License-Identifier: Apache-2.0
// Training over NCCL: the bits of copies, on up to eight devices, and what a step asks of NCCL.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include "comm/copy_collectives.h"
#include "comm/nccl_collectives.h"
#include "parallel/data_parallel.h"
#include "parallel/training_networks.h"
#include "testing/fake_nccl/simulated_nccl.h"
#include "testing/matchers.h"
#include "testing/random.h"

namespace lockstep::parallel {
namespace {

using ::lockstep::fake_nccl::simulated_nccl;
using ::lockstep::simdev::first_devices;
using ::lockstep::testing::BitwiseEqual;
using ::lockstep::testing::random_tensor;

const bool kDevicesInUse = fake_nccl::use_in_tests({/*devices=*/8});

ResNet network() {
  at::manual_seed(1);
  ResNet net;
  net->to(simdev::device(0));
  return net;
}

at::Tensor batch(int step) {
  return random_tensor({16, 3, 8, 8}, 10 + step, at::kFloat).to(simdev::device(0));
}

DataParallelOptions over(comm::DeviceCollectives& engine) {
  DataParallelOptions options;
  options.replicate.collectives = &engine;
  return options;
}

// Parameters, buffers and losses after three steps.
std::vector<at::Tensor> train(int count, comm::DeviceCollectives& engine) {
  ResNet net = network();
  DataParallel parallel(net, first_devices(count), over(engine));
  torch::optim::SGD optimizer(parallel.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  std::vector<at::Tensor> results;
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = (parallel.forward(batch(step)) - 1).pow(2).mean();
    loss.backward();
    optimizer.step();
    results.push_back(loss.detach().cpu());
  }
  for (const at::Tensor& tensor : net->parameters()) {
    results.push_back(tensor.detach().cpu());
  }
  for (const at::Tensor& tensor : net->buffers()) {
    results.push_back(tensor.cpu());
  }
  return results;
}

TEST(DataParallelNcclTest, GivesTheBitsOfCopies) {
  for (const int count : {2, 3, 8}) {
    comm::CopyCollectives copies;
    comm::NcclCollectives nccl(simulated_nccl());
    const std::vector<at::Tensor> expected = train(count, copies);
    const std::vector<at::Tensor> actual = train(count, nccl);
    EXPECT_GT(nccl.nccl_calls(), 0);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      EXPECT_THAT(actual[i], BitwiseEqual(expected[i])) << count << " devices, result " << i;
    }
  }
}

// A ring adds each chunk of a sum in an order of its own.
TEST(DataParallelNcclTest, StaysWithinRoundingOfCopiesWhenSumsRunInARing) {
  comm::CopyCollectives copies;
  comm::NcclCollectives nccl(simulated_nccl());
  const std::vector<at::Tensor> expected = train(8, copies);
  fake_nccl::set_ring_order(true);
  const std::vector<at::Tensor> actual = train(8, nccl);
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_THAT(actual[i], ::lockstep::testing::AllClose(expected[i], {1e-4, 1e-5})) << i;
  }
}

TEST(DataParallelNcclTest, AStepIsOneBroadcastAndOneSumForEachBucket) {
  comm::NcclCollectives nccl(simulated_nccl());
  ResNet net = network();
  DataParallel parallel(net, first_devices(3), over(nccl));
  long long parameter_bytes = 0;
  for (const at::Tensor& parameter : net->parameters()) {
    parameter_bytes += static_cast<long long>(parameter.nbytes());
  }
  long long buffer_bytes = 0;  // statistics in float, and counts of batches in int64
  for (const at::Tensor& buffer : net->buffers()) {
    buffer_bytes += static_cast<long long>(buffer.nbytes());
  }
  const auto step = [&] { parallel.forward(batch(0)).pow(2).mean().backward(); };
  step();  // makes the communicators, and sends what only the first step sends
  {
    const at::NoGradGuard no_grad;
    for (at::Tensor parameter : net->parameters()) {
      parameter.mul_(0.5);
    }
  }
  fake_nccl::reset_counters();
  step();
  const FakeNcclCounters counters = fake_nccl::counters();
  EXPECT_EQ(counters.groups, 3) << "floats, int64, gradients";
  EXPECT_EQ(counters.calls, 3 * 3);
  EXPECT_EQ(counters.kernels, 3 * 3);
  EXPECT_EQ(counters.bytes_sent, 2 * (2 * parameter_bytes + buffer_bytes));
  EXPECT_EQ(counters.comms_made, 0);
}

}  // namespace
}  // namespace lockstep::parallel
