// SPDX-License-Identifier: Apache-2.0
#include "autograd_fns/node_streams.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "autograd_fns/node_ptr.h"
#include "comm/current_streams.h"
#include "testing/side_streams.h"
#include "testing/simdev/counters.h"
#include "testing/simdev/test_environment.h"

namespace lockstep::autograd_fns {
namespace {

using lockstep::comm::current_streams;
using lockstep::simdev::finds_fault;
using lockstep::testing::DeviceSet;
using lockstep::testing::order;
using lockstep::testing::side_streams;
using torch::autograd::variable_list;

class EmptyNode : public torch::autograd::Node {
 public:
  variable_list apply(variable_list&& /*gradients*/) override { return {}; }
};

class NodeStreamsTest : public ::testing::TestWithParam<DeviceSet> {
 protected:
  const std::vector<c10::Device>& devices() const { return GetParam().devices; }
  c10::Device other() const { return devices().back(); }

  // A node whose own stream is the current one of the first device.
  std::shared_ptr<EmptyNode> node() const {
    auto made = make_node<EmptyNode>();
    for (const c10::Device device : devices()) {
      made->add_input_metadata(at::empty({64}, device));
    }
    return made;
  }
  // What the engine does before it runs a node: the node's stream waits for a gradient.
  at::Tensor gradient_on_side_stream() const {
    const auto sides = side_streams(other());
    const c10::MultiStreamGuard current(sides);
    const at::Tensor gradient = at::ones({64}, other());
    order(sides, current_streams(devices()[0]));
    return gradient;
  }
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS_WITH_STREAMS(NodeStreamsTest);

TEST_P(NodeStreamsTest, OtherDevicesWaitForTheNodesStream) {
  const at::Tensor gradient = gradient_on_side_stream();
  EXPECT_TRUE(finds_fault([&] { gradient + 1; }, {"nothing orders it after"}));
  const auto made = node();
  const NodeStreams streams(*made, gradient, {});
  gradient + 1;
}

TEST_P(NodeStreamsTest, TheNodesStreamWaitsForOtherDevicesAfterJoin) {
  const auto made = node();
  const NodeStreams streams(*made, {}, other());
  const at::Tensor result = at::ones({64}, other());
  const auto reads = [&] {
    const auto sides =
        std::vector<c10::Stream>{c10::impl::VirtualGuardImpl(other().type()).getNewStream(other())};
    order(current_streams(devices()[0]), sides);  // as the engine does
    const c10::MultiStreamGuard current(sides);
    result + 1;
  };
  EXPECT_TRUE(finds_fault(reads, {"nothing orders it after"}));
  streams.join();
  reads();
}

TEST_P(NodeStreamsTest, MemoryOfGradientsIsKeptUntilOtherDevicesAreDone) {
  for (const bool sparse : {false, true}) {
    const auto sides = side_streams(other());
    at::Tensor gradient;
    {
      const c10::MultiStreamGuard current(sides);
      gradient = at::ones({64}, other());
      gradient = sparse ? gradient.to_sparse() : gradient;
      order(sides, current_streams(devices()[0]));
    }
    const auto made = node();
    const NodeStreams streams(*made, gradient, {});
    const at::Tensor read = sparse ? gradient._values() + 1 : gradient + 1;
    gradient.reset();
    const c10::MultiStreamGuard current(sides);
    at::ones({64}, other()).add_(1);  // would get the memory
  }
}

TEST_P(NodeStreamsTest, DoesNothingOnOneDeviceOrOnTheHost) {
  simdev::reset_counters();
  const at::Tensor near = at::ones({64}, devices()[0]);
  const auto on_device = make_node<EmptyNode>();
  on_device->add_input_metadata(near);
  NodeStreams(*on_device, {near, at::Tensor()}, devices()[0]).join();
  const auto on_host = make_node<EmptyNode>();
  on_host->add_input_metadata(at::ones({64}));
  NodeStreams(*on_host, {at::ones({64}), near}, devices()).join();
  for (const c10::Device device : devices()) {
    EXPECT_EQ(simdev::counters(device.index()).events_recorded, 0);
  }
}

}  // namespace
}  // namespace lockstep::autograd_fns
