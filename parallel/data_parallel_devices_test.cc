// SPDX-License-Identifier: Apache-2.0
// DataParallel on devices that are really distinct: their order, where module and inputs are,
// streams.
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/optim/sgd.h>

#include "parallel/data_parallel_fixture.h"
#include "testing/side_streams.h"
#include "testing/simdev/counters.h"

namespace lockstep::parallel {
namespace {

using lockstep::testing::AllClose;
using lockstep::testing::BitwiseEqual;
using lockstep::testing::random_tensor;
using lockstep::testing::side_streams;
using lockstep::testing::ThrowsError;
using ::testing::HasSubstr;

class DataParallelDevicesTest : public DataParallelTest {
 protected:
  std::vector<c10::Device> reversed() const { return {devices().rbegin(), devices().rend()}; }
  c10::impl::VirtualGuardImpl guard() const { return c10::impl::VirtualGuardImpl(first().type()); }
  // One output and one gradient per step must be those of the module alone.
  template <class Parallel>
  void expect_as_alone(Parallel& parallel, const at::Tensor& x) const {
    const auto& net = parallel.module();
    const at::Tensor here = x.to(parallel.devices()[0]);
    const at::Tensor output = parallel.forward(x);
    EXPECT_EQ(output.device(), parallel.devices()[0]);
    EXPECT_THAT(output.detach(), AllClose(net->forward(here).detach(), {1e-12, 1e-14}));
    output.pow(2).sum().backward();
    const auto gradients = take_gradients(*net);
    net->forward(here).pow(2).sum().backward();
    expect_close(gradients, take_gradients(*net));
    for (const at::Tensor& gradient : gradients) {
      EXPECT_EQ(gradient.device(), parallel.devices()[0]);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(All, DataParallelDevicesTest, ::testing::ValuesIn([] {
                           std::vector<Setting> settings;
                           for (const auto& set : lockstep::testing::device_sets_with_streams()) {
                             settings.push_back({set, BackwardEngine::kAutomatic});
                           }
                           return settings;
                         }()),
                         [](const auto& info) { return info.param.set.name; });

TEST_P(DataParallelDevicesTest, AnyOrderOfDevicesGivesWhatTheModuleAloneGives) {
  for (const auto& order : {devices(), reversed(), {devices()[1], devices()[0]}}) {
    torch::nn::Linear linear(10, 5);
    linear->to(order[0], at::kDouble);
    DataParallel parallel(linear, order, options());
    expect_as_alone(parallel, random_tensor({20, 10}, 1).to(order[0]));
    const at::Tensor x = random_tensor({20, 10}, 2).to(order[0]);
    const at::Tensor output = data_parallel(linear, x, order);
    EXPECT_EQ(output.device(), order[0]);
    EXPECT_THAT(output.detach(), AllClose(linear->forward(x).detach(), {1e-12, 1e-14}));
  }
}

TEST_P(DataParallelDevicesTest, SeveralInputsInAnyOrderOfDevices) {
  struct Product : torch::nn::Cloneable<Product> {
    Product() { Product::reset(); }
    void reset() override {
      factor = register_parameter("factor", at::full({1}, 3.0, at::kDouble));
    }
    at::Tensor forward(const at::Tensor& a, const at::Tensor& b) { return factor * (a * b); }
    at::Tensor forward(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
      return factor * (a * b + c);
    }
    at::Tensor factor;
  };
  for (const auto& order : {devices(), reversed(), {devices()[0]}}) {
    const auto module = std::make_shared<Product>();
    module->to(order[0]);
    DataParallel parallel(module, order, options());
    const auto run = [&](const auto& forward) {
      std::vector<at::Tensor> in;
      for (uint64_t seed = 1; seed <= 3; ++seed) {
        in.push_back(random_tensor({5, 5}, seed).to(order[0]).requires_grad_());
      }
      const at::Tensor two = forward(in[0], in[1]);
      const at::Tensor three = forward(in[0], in[1], in[2]);
      (two.sum() + three.pow(2).sum()).backward();
      return std::vector<at::Tensor>{two.detach(), three.detach(), in[0].grad(),
                                     in[1].grad(), in[2].grad(),   take_gradients(*module)[0]};
    };
    expect_close(run([&](const auto&... in) { return parallel.forward(in...); }),
                 run([&](const auto&... in) { return module->forward(in...); }));
  }
}

TEST_P(DataParallelDevicesTest, AModuleThatIsNotOnTheFirstDeviceIsRefused) {
  const auto refusal = [](const std::string& tensor, c10::Device is_on, c10::Device first) {
    return ThrowsError("'" + tensor + "' is on " + is_on.str() +
                       ", but the first device of the list is " + first.str());
  };
  const std::vector<c10::Device> there = devices();
  const std::vector<c10::Device> back = {devices()[1], devices()[0]};
  const auto expect_refused = [&](const auto& net, const std::vector<c10::Device>& list,
                                  const std::string& tensor, c10::Device is_on) {
    EXPECT_THAT([&] { DataParallel(net, list, options()); }, refusal(tensor, is_on, list[0]));
    EXPECT_THAT(
        [&] {
          data_parallel(net, random_tensor({4, 2}, 1).to(list[0]), list);
        },
        refusal(tensor, is_on, list[0]));
  };
  Mlp net(2, 3, 1);
  expect_refused(net, there, "a.weight", c10::Device(c10::kCPU));
  net->to(devices()[1]);
  expect_refused(net, there, "a.weight", devices()[1]);
  net->to(devices()[0]);
  expect_refused(net, back, "a.weight", devices()[0]);
  net->b->to(devices()[1]);
  expect_refused(net, there, "b.weight", devices()[1]);
  expect_refused(net, back, "a.weight", devices()[0]);
  expect_refused(net, {devices()[0]}, "b.weight", devices()[1]);
  net->to(devices()[1]);
  DataParallel parallel(net, back, options());
  expect_as_alone(parallel, random_tensor({4, 2}, 1).to(devices()[1]));
}

TEST_P(DataParallelDevicesTest, InputsMayBeAnywhereAndTheirGradientsReturnThere) {
  Mlp net(2, 3, 1);
  net->to(first());
  DataParallel parallel(net, devices(), options());
  std::vector<at::Tensor> inputs = {random_tensor({7, 2}, 1),
                                    random_tensor({7, 2}, 2).pin_memory()};
  for (const c10::Device device : devices()) {
    inputs.push_back(random_tensor({7, 2}, 3).to(device));
  }
  for (at::Tensor& x : inputs) {
    expect_as_alone(parallel, x);
    x.requires_grad_();
    parallel.forward(x).sum().backward();
    EXPECT_EQ(x.grad().device(), x.device());
    const at::Tensor serial = x.detach().clone().requires_grad_();
    net->forward(serial.to(first())).sum().backward();
    EXPECT_THAT(x.grad(), AllClose(serial.grad(), {1e-12, 1e-14}));
    take_gradients(*net);
  }
}

TEST_P(DataParallelDevicesTest, EachChunkIsComputedOnItsOwnDevice) {
  const auto module = make_function_module(2, [this](const at::Tensor& w, const at::Tensor& x) {
    EXPECT_EQ(w.device(), x.device());
    EXPECT_EQ(guard().getDevice(), x.device());
    return x * w + x.device().index();
  });
  module->to(first());
  DataParallel parallel(module, devices(), options());
  const auto rows = static_cast<int64_t>(num_devices());
  const at::Tensor output = parallel.forward(at::zeros({rows, 2}, at::kDouble).to(first()));
  EXPECT_THAT(output.select(1, 0).detach(), BitwiseEqual(at::arange(0, rows, at::kDouble)));
}

TEST_P(DataParallelDevicesTest, AListMayNameADeviceTwiceAmongOthers) {
  const std::vector<c10::Device> list = {devices()[0], devices()[1], devices()[0]};
  Mlp net(2, 3, 1);
  net->to(first());
  DataParallel parallel(net, list, options());
  for (int step = 0; step < 3; ++step) {
    expect_as_alone(parallel, data({7, 2}, 1 + step));
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : net->parameters()) {
      parameter.mul_(0.9);
    }
  }
}

TEST_P(DataParallelDevicesTest, TrainsOnTheCallersStreamsWhateverTheCurrentDevice) {
  const auto train = [&](const auto& net, const auto& forward) {
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      const at::Tensor x = data({9, 2}, 1 + step).requires_grad_();
      forward(x).pow(2).mean().backward();
      optimizer.step();
    }
  };
  const c10::MultiStreamGuard aside(side_streams(devices()));
  const c10::DeviceGuard elsewhere(devices().back());
  Mlp one(2, 3, 1);
  Mlp many(2, 3, 1);
  for (Mlp net : {one, many}) {
    fill(*net, 1);
    net->to(first());
    // By kernels, for which the host does not wait.
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : net->parameters()) {
      parameter.mul_(0.5);
    }
  }
  DataParallel parallel(many, devices(), options());
  train(one, [&](const at::Tensor& x) { return one->forward(x); });
  train(many, [&](const at::Tensor& x) { return parallel.forward(x); });
  expect_close(many->parameters(), one->parameters());
  EXPECT_EQ(guard().getDevice(), devices().back());
}

TEST_P(DataParallelDevicesTest, ASecondDerivativeOnTheCallersStreams) {
  const c10::MultiStreamGuard aside(side_streams(devices()));
  torch::nn::Linear linear(4, 1);
  linear->to(first(), at::kDouble);
  DataParallel parallel(linear, devices(), options());
  const at::Tensor x = at::ones({8, 4}, at::kDouble).to(first()).requires_grad_();
  torch::autograd::grad({parallel.forward(x).sum()}, {x}, {}, true, /*create_graph=*/true)[0]
      .mean()
      .backward();
  EXPECT_THAT(linear->weight.grad(), BitwiseEqual(at::full({1, 4}, 0.25, at::kDouble)));
}

TEST_P(DataParallelDevicesTest, AStepCopiesParametersOnceToEachDeviceAndGradientsOnceBack) {
  Mlp net(2, 3, 1);
  net->to(first());
  DataParallel parallel(net, devices(), options());
  const auto rows = static_cast<int64_t>(num_devices());
  const at::Tensor x = data({rows, 2}, 1);
  parallel.forward(x).sum().backward();
  const int64_t others = rows - 1;
  const auto before = GetParam().set.counters();
  const at::Tensor loss = parallel.forward(x).sum();
  const auto forward = GetParam().set.counters();
  // The parameters, the chunks, and the outputs: one message for each replica elsewhere, but for
  // the copy of the first replica's output, which is one too.
  EXPECT_EQ(forward.messages - before.messages, 3 * others + 1);
  loss.backward();
  const auto backward = GetParam().set.counters();
  EXPECT_EQ(backward.messages - forward.messages, 2 * others) << "upstream parts there, sums back";
}

TEST_P(DataParallelDevicesTest, StepsNeedNoMoreMemoryThanTheFirst) {
  Mlp net(8, 64, 8);
  net->to(first());
  DataParallel parallel(net, devices(), options());
  const at::Tensor x = data({32, 8}, 1);
  const auto step = [&] {
    parallel.forward(x).pow(2).sum().backward();
    for (const at::Tensor& parameter : net->parameters()) {
      parameter.grad().zero_();
    }
  };
  const auto live = [&] {
    std::vector<int64_t> bytes;
    for (const c10::Device device : devices()) {
      guard().synchronizeDevice(device.index());
      bytes.push_back(simdev::counters(device.index()).live_bytes);
    }
    return bytes;
  };
  step();
  const auto after_first = live();
  for (int i = 0; i < 5; ++i) {
    step();
  }
  EXPECT_EQ(live(), after_first);
}

TEST_P(DataParallelDevicesTest, ATensorOutsideOfTheRegistryFailsAndNamesTheReplica) {
  const at::Tensor bare = data({3, 3}, 1);
  const at::Tensor before = bare.clone();
  const auto module = make_function_module(
      3, [bare](const at::Tensor& w, const at::Tensor& x) { return (x * w).mm(bare); });
  module->to(first());
  DataParallel parallel(module, devices(), options());
  const at::Tensor x = data({8, 3}, 1);
  try {
    parallel.forward(x);
    FAIL() << "nothing was thrown";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("in replica 1 of " + std::to_string(num_devices()) +
                                        " on " + devices()[1].str()));
  }
  EXPECT_THAT(bare, BitwiseEqual(before));
}

}  // namespace
}  // namespace lockstep::parallel
