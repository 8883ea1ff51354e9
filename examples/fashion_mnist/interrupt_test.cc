// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/interrupt.h"

#include <gtest/gtest.h>

#include <csignal>

namespace fashion_mnist {
namespace {

TEST(InterruptTest, NotesTheFirstSignalAndEndsOnTheSecond) {
  watch_for_interrupt();
  EXPECT_FALSE(interrupted());
  std::raise(SIGINT);
  EXPECT_TRUE(interrupted());
  EXPECT_EXIT(std::raise(SIGINT), ::testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace fashion_mnist
