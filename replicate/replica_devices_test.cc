// SPDX-License-Identifier: Apache-2.0
// Replicas on devices that are really distinct: where memory, copies and streams matter.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>

#include <functional>
#include <thread>

#include "comm/current_streams.h"
#include "replicate/replica_set.h"
#include "replicate/replicas_fixture.h"
#include "replicate/replicatable.h"
#include "replicate/replicate.h"
#include "replicate/test_modules.h"
#include "testing/matchers.h"
#include "testing/side_streams.h"
#include "testing/simdev/counters.h"

namespace lockstep::replicate {
namespace {

using lockstep::testing::AllClose;
using lockstep::testing::BitwiseEqual;
using lockstep::testing::order;
using lockstep::testing::side_streams;
using lockstep::testing::ThrowsError;

constexpr int64_t kElements = int64_t{1} << 20;
constexpr int64_t kBytes = kElements * 4;

// One large parameter. As a clone its twin is made on the device; as a Replicatable it says that an
// empty one is enough.
struct LargeImpl : torch::nn::Cloneable<LargeImpl> {
  LargeImpl() { reset(); }
  void reset() override { weight = register_parameter("weight", at::zeros({kElements})); }
  at::Tensor weight;
};

struct LazyImpl : torch::nn::Module, Replicatable {
  explicit LazyImpl(const at::Tensor& values) { weight = register_parameter("weight", values); }
  std::shared_ptr<torch::nn::Module> make_replica() const override {
    return std::make_shared<LazyImpl>(at::empty({0}));
  }
  at::Tensor weight;
};

// A tensor in no registry, which the visitor names.
struct MatrixImpl : torch::nn::Module, Replicatable {
  MatrixImpl() { register_parameter("weight", at::ones({1}, at::kDouble)); }
  std::shared_ptr<torch::nn::Module> make_replica() const override {
    auto twin = std::make_shared<MatrixImpl>();
    twin->matrix = matrix;
    return twin;
  }
  void visit_extra_tensors(const TensorVisitor& visit) override { visit("matrix", matrix); }
  at::Tensor forward(const at::Tensor& x) { return x.mm(matrix); }
  at::Tensor matrix;
};

class ReplicaDevicesTest : public ReplicasTest {
 protected:
  std::vector<int64_t> live_bytes() const {
    std::vector<int64_t> bytes;
    for (const c10::Device device : devices()) {
      bytes.push_back(simdev::counters(device.index()).live_bytes);
    }
    return bytes;
  }
  // By how much the memory in use has grown at most, by device.
  std::vector<int64_t> peaks_above(const std::vector<int64_t>& before) const {
    std::vector<int64_t> peaks;
    for (size_t r = 0; r < devices().size(); ++r) {
      peaks.push_back(simdev::counters(devices()[r].index()).peak_bytes - before[r]);
    }
    return peaks;
  }
  // `at_home` on the first device, `away` on every other.
  std::vector<int64_t> by_device(int64_t at_home, int64_t away) const {
    std::vector<int64_t> all(devices().size(), away);
    all[0] = at_home;
    return all;
  }
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS_WITH_STREAMS(ReplicaDevicesTest);

TEST_P(ReplicaDevicesTest, AllTensorsTravelToEachDeviceInOneMessage) {
  const auto net = placed(std::make_shared<TiedImpl>());
  const auto before = GetParam().counters();
  const auto replicas = replicate(net, devices(), options());
  const auto after = GetParam().counters();
  EXPECT_EQ(after.calls - before.calls, 1);
  EXPECT_EQ(after.messages - before.messages, k() - 1);
  EXPECT_EQ(after.bytes - before.bytes, (k() - 1) * 3 * 2 * 8) << "a, the child's weight and shift";
  for (int64_t r = 0; r < k(); ++r) {
    EXPECT_EQ(replicas[r]->a.device(), devices()[r]);
    EXPECT_EQ(replicas[r]->left->shift.device(), devices()[r]);
  }
}

TEST_P(ReplicaDevicesTest, ACopyIsTheOnlyMemoryThatAReplicaTakes) {
  const auto net = placed(std::make_shared<LargeImpl>());
  const auto before = live_bytes();
  simdev::reset_counters();
  const auto replicas = replicate(net, devices(), options());
  EXPECT_EQ(live_bytes()[0], before[0]);
  // clone() makes one of its own for replica 0, which is let go at once.
  EXPECT_EQ(peaks_above(before), by_device(kBytes, kBytes));
}

TEST_P(ReplicaDevicesTest, AnEmptyTwinTakesNoMemoryWhereTheModuleIs) {
  const auto net = std::make_shared<LazyImpl>(at::zeros({kElements}, first()));
  const auto before = live_bytes();
  simdev::reset_counters();
  const auto replicas = replicate(net, devices(), options());
  EXPECT_EQ(peaks_above(before), by_device(0, kBytes));
}

TEST_P(ReplicaDevicesTest, SynchronisingALargeTensorTakesNoMemory) {
  const auto net = placed(std::make_shared<LargeImpl>());
  ReplicaSet<LargeImpl> set(net, devices(), options());
  {
    const at::NoGradGuard no_grad;
    net->weight.fill_(3);
  }
  const auto before = live_bytes();
  simdev::reset_counters();
  set.synchronize();
  EXPECT_EQ(peaks_above(before), by_device(0, 0));
  EXPECT_EQ(set.replicas().back()->weight[-1].item<float>(), 3.0F);
}

TEST_P(ReplicaDevicesTest, ATensorInNoRegistryIsCopiedToEveryDevice) {
  const auto net = placed(std::make_shared<MatrixImpl>());
  net->matrix = data({3, 3}, 1);
  const at::Tensor before = net->matrix.cpu();
  const at::Tensor x = data({2, 3}, 2);
  const at::Tensor expected = net->forward(x).cpu();
  const auto replicas = replicate(net, devices(), options());
  for (int64_t r = 0; r < k(); ++r) {
    EXPECT_EQ(replicas[r]->matrix.device(), devices()[r]);
    EXPECT_THAT(replicas[r]->forward(beside(*replicas[r], x)), BitwiseEqual(expected));
    if (r > 0) {
      replicas[r]->matrix.fill_(-1);
    }
  }
  EXPECT_THAT(net->matrix, BitwiseEqual(before));
}

TEST_P(ReplicaDevicesTest, ATensorInNoRegistryThatIsElsewhereIsNamed) {
  const auto net = placed(std::make_shared<MatrixImpl>());
  net->matrix = at::ones({3, 3}, at::kDouble);
  EXPECT_THAT([&] { replicate(net, devices(), options()); },
              ThrowsError("[replicate] extra tensor 'matrix' is on cpu, but the first device of "
                          "the list is " +
                          first().str()));
}

TEST_P(ReplicaDevicesTest, ADeviceMayBeListedTwiceAmongOthers) {
  std::vector<c10::Device> twice = devices();
  twice.insert(twice.end(), devices().begin(), devices().end());
  const auto net = placed(std::make_shared<AffineImpl>(3));
  ReplicaSet<AffineImpl> set(net, twice, options());
  const at::Tensor x = data({2, 3}, 1);
  for (int step = 0; step < 2; ++step) {
    set.synchronize();
    for (size_t r = 0; r < twice.size(); ++r) {
      const auto& replica = set.replicas()[r];
      EXPECT_EQ(replica->weight.is_alias_of(net->weight), twice[r] == first());
      EXPECT_THAT(replica->weight.detach(), BitwiseEqual(net->weight.detach()));
      EXPECT_THAT(replica->shift, BitwiseEqual(net->shift));
      replica->forward(beside(*replica, x)).sum().backward();
    }
    EXPECT_EQ(net->weight.grad().device(), first());
    EXPECT_THAT(take_gradients(*net)[0],
                AllClose(x.sum(0) * static_cast<double>(twice.size()), {1e-12, 1e-12}));
    const at::NoGradGuard no_grad;
    net->weight.add_(1);
    net->shift.add_(1);
  }
}

TEST_P(ReplicaDevicesTest, TheFirstOfTheListIsTheModulesWhateverItsIndex) {
  std::vector<c10::Device> reversed(devices().rbegin(), devices().rend());
  const auto net = std::make_shared<AffineImpl>(3);
  net->to(reversed[0]);
  const auto replicas = replicate(net, reversed, options());
  EXPECT_TRUE(replicas[0]->shift.is_alias_of(net->shift));
  for (size_t r = 0; r < reversed.size(); ++r) {
    EXPECT_EQ(replicas[r]->weight.device(), reversed[r]);
  }
  EXPECT_THAT([&] { replicate(net, devices(), options()); },
              ThrowsError("parameter 'weight' is on " + reversed[0].str() +
                          ", but the first device of the list is " + first().str()));
}

TEST_P(ReplicaDevicesTest, TheCurrentDeviceDoesNotMatterAndStaysWhatItWas) {
  const auto net = placed(std::make_shared<AffineImpl>(3));
  const c10::DeviceGuard elsewhere(devices().back());
  ReplicaSet<AffineImpl> set(net, devices(), options());
  const at::Tensor x = data({3}, 1);
  for (const auto& replica : set.replicas()) {
    replica->forward(beside(*replica, x)).sum().backward();
  }
  set.synchronize();
  EXPECT_THAT(net->weight.grad(), AllClose(x * static_cast<double>(k()), {1e-12, 1e-12}));
  EXPECT_EQ(c10::impl::VirtualGuardImpl(first().type()).getDevice(), devices().back());
}

// --- streams: whatever is wrong with them the simulated devices report ---------------------------

TEST_P(ReplicaDevicesTest, AllIsOrderedAfterTheCallersStreams) {
  ReplicateOptions in_threads = options();
  in_threads.executor = [](int64_t n, const std::function<void(int64_t)>& task) {
    std::vector<std::thread> threads;
    for (int64_t i = 0; i < n; ++i) {
      threads.emplace_back([&task, i] { task(i); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  };
  const c10::MultiStreamGuard aside(side_streams(devices()));
  const auto net = placed(std::make_shared<TiedImpl>());
  const auto halve = [&] {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : net->parameters()) {
      parameter.mul_(0.5);
    }
    net->left->shift.mul_(0.5);
  };
  // Written last by kernels, for which the host does not wait.
  halve();
  ReplicaSet<TiedImpl> set(net, devices(), in_threads);
  for (int step = 0; step < 3; ++step) {
    const at::Tensor x = data({4, 2}, 1 + step);
    set.synchronize();
    at::Tensor loss = at::zeros({}, x.options());
    for (const auto& replica : set.replicas()) {
      loss = loss + replica->forward(beside(*replica, x)).pow(2).sum().to(first());
    }
    loss.backward();
    const auto gradients = take_gradients(*net);
    net->forward(x).pow(2).sum().backward();
    const auto alone = take_gradients(*net);
    for (size_t p = 0; p < alone.size(); ++p) {
      EXPECT_THAT(gradients[p], AllClose(alone[p] * static_cast<double>(k()), {1e-12, 1e-12}));
    }
    halve();
  }
}

TEST_P(ReplicaDevicesTest, GradientsOfReplicasOnStreamsOfTheirOwnArriveInOrder) {
  const auto net = placed(std::make_shared<AffineImpl>(3));
  const at::Tensor x = data({4, 3}, 1);
  const auto replicas = replicate(net, devices(), options());
  std::vector<at::Tensor> inputs;
  for (const auto& replica : replicas) {
    inputs.push_back(beside(*replica, x));
  }
  const auto current = comm::current_streams(devices());
  const auto sides = side_streams(devices());
  std::vector<at::Tensor> losses;
  for (size_t r = 0; r < replicas.size(); ++r) {
    const c10::StreamGuard aside(sides[r]);
    inputs[r].record_stream(sides[r]);
    losses.push_back(replicas[r]->forward(inputs[r]).pow(2).sum());
    losses.back().record_stream(current[r]);
  }
  order(sides, current);
  at::Tensor loss = at::zeros({}, x.options());
  for (const at::Tensor& part : losses) {
    loss = loss + part.to(first());
  }
  loss.backward();
  const auto gradients = take_gradients(*net);
  net->forward(x).pow(2).sum().backward();
  EXPECT_THAT(gradients[0],
              AllClose(take_gradients(*net)[0] * static_cast<double>(k()), {1e-12, 1e-12}));
}

}  // namespace
}  // namespace lockstep::replicate
