// SPDX-License-Identifier: Apache-2.0
// Random numbers of replicas on devices that have generators of their own.
#include <ATen/Context.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "replicate/no_draws_scope.h"
#include "replicate/replica_generators.h"
#include "testing/matchers.h"
#include "testing/simdev/test_environment.h"

namespace lockstep::replicate::internal {
namespace {

using lockstep::simdev::device;
using lockstep::testing::BitwiseEqual;

const bool kDevicesInUse = lockstep::simdev::use_in_tests();

at::Tensor state_of(int index) {
  return at::globalContext().defaultGenerator(device(index)).get_state();
}

// Replica r runs on devices[r]: what each draws, one thread per replica.
std::vector<at::Tensor> run(const std::vector<int>& devices,
                            const std::function<at::Tensor(c10::Device)>& draw) {
  at::manual_seed(7);
  ReplicaGenerators generators(devices.size());
  generators.begin();
  std::vector<at::Tensor> drawn(devices.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < devices.size(); ++r) {
    threads.emplace_back([&, r] {
      const ReplicaGenerators::Scope scope(generators, r);
      drawn[r] = draw(device(devices[r])).cpu();
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return drawn;
}

void expect_repeats(const std::vector<int>& devices,
                    const std::function<at::Tensor(c10::Device)>& draw) {
  const auto first = run(devices, draw);
  const std::vector<at::Tensor> states{state_of(0), state_of(1)};
  EXPECT_FALSE(at::equal(first[0], first[1]));
  for (int i = 0; i < 10; ++i) {
    const auto again = run(devices, draw);
    EXPECT_THAT(again[0], BitwiseEqual(first[0]));
    EXPECT_THAT(again[1], BitwiseEqual(first[1]));
  }
  at::manual_seed(7);
  EXPECT_THAT(states[0], BitwiseEqual(state_of(0)));
  EXPECT_THAT(states[1], BitwiseEqual(state_of(1)));
}

TEST(ReplicaGeneratorsDevicesTest, DrawsOnADeviceRepeat) {
  const auto draw = [](c10::Device where) {
    return at::cat({at::randn({33}, where), at::empty({33}, where).uniform_(),
                    at::dropout(at::ones({33}, where), 0.5, /*train=*/true)});
  };
  expect_repeats({0, 1}, draw);
  expect_repeats({1, 1}, draw);  // one device twice
}

TEST(ReplicaGeneratorsDevicesTest, DrawsOnTheHostByAReplicaOfADeviceRepeat) {
  expect_repeats(
      {0, 1}, [](c10::Device where) { return at::rand({33}).to(where) + at::rand({33}, where); });
}

TEST(ReplicaGeneratorsDevicesTest, ADeviceWithoutIndexIsTheCurrentOne) {
  expect_repeats({0, 0},
                 [](c10::Device where) { return at::rand({33}, c10::Device(where.type())); });
}

TEST(ReplicaGeneratorsDevicesTest, NoDrawsScopeLeavesTheDevicesGeneratorsAlone) {
  at::manual_seed(7);
  const at::Tensor before = state_of(1);
  const at::Tensor parameter = at::ones({4}, device(1)).requires_grad_();
  {
    const NoDrawsScope scope;
    at::rand({4}, device(1));
    parameter.detach().requires_grad_().uniform_();
    at::rand({4}, at::globalContext().defaultGenerator(device(1)), device(1));
  }
  EXPECT_THAT(state_of(1), BitwiseEqual(before));
}

}  // namespace
}  // namespace lockstep::replicate::internal
