// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/generator.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/matchers.h"
#include "testing/simdev/test_environment.h"

namespace lockstep::simdev {
namespace {

using lockstep::testing::BitwiseEqual;
using lockstep::testing::ThrowsError;

const bool kDevicesInUse = use_in_tests();

at::Tensor draw(c10::Device where) { return at::randn({257}, where).cpu(); }

TEST(GeneratorTest, ManualSeedSeedsTheCpuAndEveryDevice) {
  at::manual_seed(7);
  const at::Tensor expected = draw(at::kCPU);
  for (int index = 0; index < device_count(); ++index) {
    EXPECT_THAT(draw(device(index)), BitwiseEqual(expected));
  }
}

TEST(GeneratorTest, DevicesDrawFromGeneratorsOfTheirOwn) {
  at::manual_seed(7);
  const at::Tensor first = draw(device(1));
  const at::Tensor second = draw(device(1));
  EXPECT_FALSE(at::equal(first, second));
  EXPECT_THAT(draw(device(2)), BitwiseEqual(first));
  EXPECT_THAT(draw(at::kCPU), BitwiseEqual(first));
}

TEST(GeneratorTest, OtherDistributionsDrawFromTheDeviceToo) {
  at::manual_seed(7);
  const at::Tensor cpu = at::cat({at::rand({5}), at::randperm(5).to(at::kFloat),
                                  at::bernoulli(at::full({5}, 0.5)), at::randint(9, {5})});
  const auto on_device = at::TensorOptions(device(3));
  const at::Tensor there =
      at::cat({at::rand({5}, on_device), at::randperm(5, on_device).to(at::kFloat),
               at::bernoulli(at::full({5}, 0.5, on_device)), at::randint(9, {5}, on_device)});
  EXPECT_THAT(there.cpu(), BitwiseEqual(cpu));
}

TEST(GeneratorTest, StateCanBeKeptAndBroughtBack) {
  at::Generator generator = at::globalContext().defaultGenerator(device(1));
  EXPECT_EQ(generator.device(), device(1));
  const at::Tensor state = generator.get_state();
  const at::Tensor first = draw(device(1));
  generator.set_state(state);
  EXPECT_THAT(draw(device(1)), BitwiseEqual(first));
}

TEST(GeneratorTest, ExplicitGeneratorsAreIndependent) {
  at::Generator generator = internal::make_generator(2);
  generator.set_current_seed(11);
  EXPECT_EQ(generator.current_seed(), 11);
  const at::Generator same = generator.clone();
  at::manual_seed(3);
  const at::Tensor first = at::randn({9}, generator, at::TensorOptions(device(2))).cpu();
  EXPECT_THAT(at::randn({9}, same, at::TensorOptions(device(2))).cpu(), BitwiseEqual(first));
  at::manual_seed(11);
  EXPECT_THAT(at::randn({9}, device(2)).cpu(), BitwiseEqual(first));
}

TEST(GeneratorTest, GeneratorOfTheCpuIsRefused) {
  EXPECT_THAT([] { internal::host_generator(at::globalContext().defaultGenerator(at::kCPU)); },
              ThrowsError("[simdev] expected a generator of a simulated device, got one of cpu"));
}

TEST(GeneratorTest, SeedsOfTheirOwnDiffer) {
  at::Generator a = internal::make_generator(0), b = internal::make_generator(0);
  EXPECT_EQ(a.current_seed(), b.current_seed());
  a.seed();
  EXPECT_NE(a.current_seed(), b.current_seed());
}

}  // namespace
}  // namespace lockstep::simdev
