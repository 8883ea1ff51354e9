// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/subprocess.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace lockstep::benchmarks {
namespace {

TEST(SubprocessTest, CapturesOutputLongerThanAPipe) {
  const Finished finished =
      run_program({"sh", "-c", "head -c 200000 /dev/zero | tr '\\0' x"}, {true});
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_EQ(finished.output, std::string(200000, 'x'));
}

TEST(SubprocessTest, ArgumentsArePassedAsTheyAre) {
  EXPECT_EQ(run_program({"printf", "%s", "a b $HOME"}, {true}).output, "a b $HOME");
}

TEST(SubprocessTest, ReportsExitCodeAndSignal) {
  EXPECT_EQ(run_program({"sh", "-c", "exit 3"}).exit_code, 3);
  EXPECT_EQ(run_program({"sh", "-c", "kill -9 $$"}).exit_code, 128 + 9);
}

TEST(SubprocessTest, AProgramThatDoesNotExistIsAnError) {
  EXPECT_THROW(run_program({"/no/such/program"}, {true}), std::runtime_error);
  EXPECT_THROW(run_program({}), std::runtime_error);
}

}  // namespace
}  // namespace lockstep::benchmarks
