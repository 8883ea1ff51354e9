// SPDX-License-Identifier: Apache-2.0
#include "replicate/generator_guard.h"

#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <optional>

#include "replicate/test_modules.h"
#include "testing/matchers.h"

namespace lockstep::replicate::internal {
namespace {

using lockstep::testing::BitwiseEqual;

TEST(GeneratorGuardTest, UndoesDrawsOfItsScope) {
  const at::Tensor before = generator_state();
  {
    const GeneratorGuard guard;
    at::randn({3});
    EXPECT_THAT(generator_state(), ::testing::Not(BitwiseEqual(before)));
  }
  EXPECT_THAT(generator_state(), BitwiseEqual(before));
}

TEST(GeneratorGuardTest, OverlappingGuardsRestoreWhatWasBeforeTheFirst) {
  const at::Tensor before = generator_state();
  std::optional<GeneratorGuard> first(std::in_place);
  at::randn({3});
  std::optional<GeneratorGuard> second(std::in_place);
  at::randn({3});
  first.reset();
  second.reset();
  EXPECT_THAT(generator_state(), BitwiseEqual(before));
}

}  // namespace
}  // namespace lockstep::replicate::internal
