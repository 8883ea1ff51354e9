// SPDX-License-Identifier: Apache-2.0
#include "testing/warnings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

void warn_once() { TORCH_WARN_ONCE("once"); }

TEST(WarningsTest, CollectsInOrderAndEveryTime) {
  Warnings warnings;
  warn_once();
  TORCH_WARN("between ", 2);
  warn_once();
  EXPECT_THAT(warnings.messages, ElementsAre("once", "between 2", "once"));
}

TEST(WarningsTest, TheInnermostCollectsAndNothingIsLeftBehind) {
  Warnings outer;
  {
    Warnings inner;
    TORCH_WARN("one");
    EXPECT_THAT(inner.messages, ElementsAre("one"));
  }
  EXPECT_THAT(outer.messages, IsEmpty());
  TORCH_WARN("two");
  EXPECT_THAT(outer.messages, ElementsAre("two"));
}

}  // namespace
}  // namespace lockstep::testing
