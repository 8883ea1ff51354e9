// SPDX-License-Identifier: Apache-2.0
#include "examples/printed_numbers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::examples {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(PrintedNumbersTest, AreThoseThatDirectlyFollowTheWord) {
  EXPECT_THAT(printed_numbers("step 0  loss 3\nstep 1  loss 2e-1;\n", "loss"), ElementsAre(3, 0.2));
  EXPECT_THAT(printed_numbers("the loss of loss fell by 3\n", "loss"), IsEmpty());
}

}  // namespace
}  // namespace lockstep::examples
