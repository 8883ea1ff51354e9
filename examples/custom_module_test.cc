// SPDX-License-Identifier: Apache-2.0
// Runs the whole program: about 7 seconds of computing.
#include <gtest/gtest.h>

#include <cstdlib>

#include "examples/printed_numbers.h"
#include "examples/run_program.h"

namespace lockstep::examples {
namespace {

TEST(CustomModuleTest, LearnsTheMotionWithTheGradientsOfOneDevice) {
  // Waiting threads of OpenMP would take the cores from other tests.
  setenv("OMP_WAIT_POLICY", "passive", /*overwrite=*/1);
  const ProgramResult result = run_program({"examples/custom_module"});
  ASSERT_EQ(result.exit_code, 0) << result.out << result.error;
  const auto losses = printed_numbers(result.out, "loss");
  const auto errors = printed_numbers(result.out, "error");
  const auto differences = printed_numbers(result.out, "difference");
  ASSERT_EQ(losses.size(), 6u) << result.out;
  ASSERT_EQ(errors.size(), 6u) << result.out;
  ASSERT_EQ(differences.size(), 1u) << result.out;
  EXPECT_LT(losses.back(), losses.front() / 1000) << result.out;
  EXPECT_LT(errors.back(), 0.02) << result.out;
  EXPECT_LT(differences.back(), 1e-4) << result.out;
}

}  // namespace
}  // namespace lockstep::examples
