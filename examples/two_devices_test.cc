// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <sstream>
#include <vector>

#include "examples/run_program.h"

namespace lockstep::examples {
namespace {

TEST(TwoDevicesTest, PrintsALossThatFalls) {
  const ProgramResult result = run_program({"examples/two_devices"});
  ASSERT_EQ(result.exit_code, 0) << result.error;
  std::vector<double> losses;
  std::istringstream words(result.out);
  for (std::string word; words >> word;) {
    double loss = 0;
    if (word == "loss" && words >> loss) losses.push_back(loss);
  }
  ASSERT_EQ(losses.size(), 5u) << result.out;
  for (size_t i = 1; i < losses.size(); ++i) EXPECT_LT(losses[i], losses[i - 1]) << result.out;
  EXPECT_LT(losses.back(), 0.01);
}

}  // namespace
}  // namespace lockstep::examples
