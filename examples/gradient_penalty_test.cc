// SPDX-License-Identifier: Apache-2.0
// Runs the whole program: about 15 seconds of computing.
#include <gtest/gtest.h>

#include <cstdlib>

#include "examples/printed_numbers.h"
#include "examples/run_program.h"

namespace lockstep::examples {
namespace {

TEST(GradientPenaltyTest, BringsTheMadePointsToAllClusters) {
  // Waiting threads of OpenMP would take the cores from other tests.
  setenv("OMP_WAIT_POLICY", "passive", /*overwrite=*/1);
  const ProgramResult result = run_program({"examples/gradient_penalty"});
  ASSERT_EQ(result.exit_code, 0) << result.error;
  const auto distances = printed_numbers(result.out, "distance");
  const auto gaps = printed_numbers(result.out, "wasserstein");
  const auto clusters = printed_numbers(result.out, "clusters");
  ASSERT_EQ(distances.size(), 6u) << result.out;
  ASSERT_EQ(gaps.size(), 6u) << result.out;
  ASSERT_EQ(clusters.size(), 6u) << result.out;
  EXPECT_LT(distances.back(), distances.front() / 3) << result.out;
  EXPECT_LT(gaps.back(), gaps[1]) << result.out;
  EXPECT_LT(clusters.front(), 8) << result.out;
  EXPECT_EQ(clusters.back(), 8) << result.out;
}

}  // namespace
}  // namespace lockstep::examples
