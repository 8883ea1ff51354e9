// SPDX-License-Identifier: Apache-2.0
// parallel_apply on devices that are really distinct: current devices and streams, and where
// results end.
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "comm/current_streams.h"
#include "parallel/parallel_apply.h"
#include "testing/device_sets.h"
#include "testing/matchers.h"
#include "testing/random.h"
#include "testing/side_streams.h"
#include "testing/simdev/test_environment.h"

namespace lockstep::parallel {
namespace {

using comm::current_streams;
using lockstep::testing::BitwiseEqual;
using lockstep::testing::DeviceSet;
using lockstep::testing::random_tensor;
using lockstep::testing::side_streams;
using ::testing::HasSubstr;

using Callable = std::function<at::Tensor(const at::Tensor&)>;

class ParallelApplyDevicesTest : public ::testing::TestWithParam<DeviceSet> {
 protected:
  const std::vector<c10::Device>& devices() const { return GetParam().devices; }
  size_t count() const { return devices().size(); }
  c10::impl::VirtualGuardImpl guard() const {
    return c10::impl::VirtualGuardImpl(devices()[0].type());
  }

  // The same values on every device, last written by a kernel: the host does not wait for it.
  std::vector<at::Tensor> inputs() const {
    std::vector<at::Tensor> inputs;
    for (const c10::Device device : devices()) {
      inputs.push_back(random_tensor({2, 3}, 1).to(device).clone());
    }
    return inputs;
  }
  // What every replica finds to be the current device, and the current streams of all devices.
  using Seen = std::tuple<std::string, std::vector<c10::Stream>>;
  std::vector<Seen> look_around() {
    auto function = [this](const at::Tensor&) {
      return Seen{guard().getDevice().str(), current_streams(devices())};
    };
    const std::vector<decltype(function)> replicas(count(), function);
    return parallel_apply(pool_, replicas, inputs());
  }

  WorkerPool pool_;
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS_WITH_STREAMS(ParallelApplyDevicesTest);

TEST_P(ParallelApplyDevicesTest, WorkersOfABarePoolTakeOverTheCallersDevice) {
  for (const c10::Device device : devices()) {
    const c10::DeviceGuard current(device);
    std::vector<std::string> seen(count());
    pool_.run(static_cast<int64_t>(count()),
              [&](int64_t i) { seen[i] = guard().getDevice().str(); });
    EXPECT_EQ(seen, std::vector<std::string>(count(), device.str()));
  }
}

TEST_P(ParallelApplyDevicesTest, TheCurrentDeviceIsTheReplicasAndStreamsAreTheCallers) {
  const auto before = current_streams(devices());
  const auto side = side_streams(devices());
  for (const auto& streams : {before, side}) {
    const c10::MultiStreamGuard current(streams);
    const c10::DeviceGuard last(devices().back());
    const auto seen = look_around();
    for (size_t i = 0; i < count(); ++i) {
      EXPECT_EQ(std::get<0>(seen[i]), devices()[i].str());
      EXPECT_EQ(std::get<1>(seen[i]), streams) << "replica " << i;
    }
    EXPECT_EQ(guard().getDevice(), devices().back()) << "the caller's";
    EXPECT_EQ(current_streams(devices()), streams);
  }
  // Workers stay; what they took over must not.
  for (const Seen& seen : look_around()) {
    EXPECT_EQ(std::get<1>(seen), before);
  }
}

TEST_P(ParallelApplyDevicesTest, ADeviceWithoutIndexMeansTheReplicas) {
  const std::vector<Callable> replicas(count(), [](const at::Tensor& x) {
    const at::Tensor made = at::full_like(x, 2, x.options().device(x.device().type()));
    return made * x;
  });
  for (const at::Tensor& output : parallel_apply(pool_, replicas, inputs(), devices())) {
    EXPECT_THAT(output, BitwiseEqual(random_tensor({2, 3}, 1) * 2));
  }
}

TEST_P(ParallelApplyDevicesTest, TheDeviceIsFoundInNestedInputs) {
  using Input = std::tuple<std::optional<at::Tensor>, std::map<std::string, at::Tensor>>;
  std::vector<Input> nested;
  for (const at::Tensor& x : inputs()) {
    nested.push_back({std::nullopt, {{"x", x}}});
  }
  auto function = [this](const std::optional<at::Tensor>&,
                         const std::map<std::string, at::Tensor>& named) {
    return std::tuple(guard().getDevice().str(), named.at("x").device());
  };
  const std::vector<decltype(function)> replicas(count(), function);
  const auto seen = parallel_apply(pool_, replicas, nested);
  for (size_t i = 0; i < count(); ++i) {
    EXPECT_EQ(std::get<0>(seen[i]), devices()[i].str());
    EXPECT_EQ(std::get<1>(seen[i]), devices()[i]);
  }
}

TEST_P(ParallelApplyDevicesTest, ResultsEndOnTheGivenDevicesWhereverTheyAreMade) {
  const c10::Device cpu(c10::kCPU);
  const std::vector<c10::Device> places = {devices()[1], devices()[0], cpu};
  for (const c10::Device made_on : {devices()[0], devices()[1], cpu}) {
    const std::vector<Callable> replicas(3, [&](const at::Tensor&) {
      return at::ones({5}, at::TensorOptions(at::kInt).device(made_on));
    });
    const std::vector<at::Tensor> any(3, at::zeros({1}));
    const auto outputs = parallel_apply(pool_, replicas, any, places);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(outputs[i].device(), places[i]);
      EXPECT_THAT(outputs[i], BitwiseEqual(at::ones({5}, at::kInt)));
    }
  }
}

TEST_P(ParallelApplyDevicesTest, ResultsThatAreMovedKeepTheirGradients) {
  const at::Tensor leaf = at::ones({3}, devices()[0]).requires_grad_();
  std::vector<Callable> replicas;
  for (size_t i = 0; i < count(); ++i) {
    // Made on the neighbour's device.
    const c10::Device next = devices()[(i + 1) % count()];
    replicas.emplace_back([&leaf, next](const at::Tensor&) { return leaf.to(next) * 2; });
  }
  const auto outputs = parallel_apply(pool_, replicas, inputs(), devices());
  at::Tensor total = at::zeros({}, devices()[0]);
  for (const at::Tensor& output : outputs) {
    total = total + output.sum().to(devices()[0]);
  }
  total.backward();
  EXPECT_THAT(leaf.grad(), BitwiseEqual(at::full({3}, 2.0F * static_cast<float>(count()))));
}

TEST_P(ParallelApplyDevicesTest, WorkIsOrderedAfterTheCallersStreamsAndBeforeTheirNextWork) {
  const c10::MultiStreamGuard aside(side_streams(devices()));
  const auto made_here = inputs();
  // Every replica reads its own input and, across devices, the first one's.
  const std::vector<Callable> replicas(
      count(), [&](const at::Tensor& x) { return x + made_here[0].to(x.device()); });
  for (const at::Tensor& output : parallel_apply(pool_, replicas, made_here, devices())) {
    EXPECT_THAT(output * 1, BitwiseEqual(random_tensor({2, 3}, 1) * 2));
  }
}

TEST_P(ParallelApplyDevicesTest, AThreadThatTakesOverNoStreamsWouldRace) {
  // What the test above would find: a pool's own tasks have the default streams.
  const c10::MultiStreamGuard aside(side_streams(devices()));
  const auto made_here = inputs();
  EXPECT_TRUE(simdev::finds_fault(
      [&] { pool_.run(2, [&](int64_t i) { made_here[1].mul(static_cast<double>(i)); }); },
      {"nothing orders it after"}));
}

TEST_P(ParallelApplyDevicesTest, ATensorOnAnotherDeviceFailsAndTheReplicaIsNamed) {
  const at::Tensor captured = at::ones({2, 3}, at::TensorOptions(at::kDouble).device(devices()[0]));
  const std::vector<Callable> replicas(count(), [&](const at::Tensor& x) { return x * captured; });
  try {
    parallel_apply(pool_, replicas, inputs(), devices());
    FAIL() << "nothing was thrown";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("in replica 1 of " + std::to_string(count()) + " on " +
                                        devices()[1].str()));
  }
  EXPECT_EQ(last_failure()->device, devices()[1]);
  EXPECT_EQ(last_failure()->others.size(), count() - 2);
}

TEST_P(ParallelApplyDevicesTest, ReplicasThatRunOutOfMemoryAreNamedAndTheTypeIsKept) {
  const std::vector<Callable> replicas(count(), [&](const at::Tensor& x) {
    return x.device() == devices().back() ? at::empty({int64_t{1} << 30}, x.options()) : x;
  });
  try {
    parallel_apply(pool_, replicas, inputs(), devices());
    FAIL() << "nothing was thrown";
  } catch (const c10::OutOfMemoryError& error) {
    EXPECT_THAT(error.what(), HasSubstr("in replica " + std::to_string(count() - 1) + " of "));
  }
}

}  // namespace
}  // namespace lockstep::parallel
