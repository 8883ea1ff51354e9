// SPDX-License-Identifier: Apache-2.0
#include "replicate/seeded_generators.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "testing/matchers.h"

namespace lockstep::replicate::internal {
namespace {

using lockstep::testing::BitwiseEqual;

TEST(SeededGeneratorsTest, StartsFromTheSeedAndGoesOn) {
  SeededGenerators generators;
  generators.seed(7);
  at::Generator same = at::detail::createCPUGenerator(7);
  EXPECT_THAT(at::rand({3}, generators.on(c10::kCPU)), BitwiseEqual(at::rand({3}, same)));
  EXPECT_THAT(at::rand({3}, generators.on(c10::kCPU)), BitwiseEqual(at::rand({3}, same)));
}

TEST(SeededGeneratorsTest, ASeedStartsTheSameGeneratorAnew) {
  SeededGenerators generators;
  generators.seed(7);
  const at::Generator before = generators.on(c10::kCPU);
  const at::Tensor first = at::randn({1}, before);  // a second normal number is kept for later
  generators.seed(7);
  EXPECT_EQ(generators.on(c10::kCPU), before);
  EXPECT_THAT(at::randn({1}, before), BitwiseEqual(first));
}

TEST(SeededGeneratorsTest, ADeviceWithoutGeneratorsHasNone) {
  SeededGenerators generators;
  EXPECT_FALSE(generators.on(c10::kMeta).defined());
  EXPECT_FALSE(SeededGenerators::exist_on(c10::kMeta));
  EXPECT_TRUE(SeededGenerators::exist_on(c10::kCPU));
}

}  // namespace
}  // namespace lockstep::replicate::internal
