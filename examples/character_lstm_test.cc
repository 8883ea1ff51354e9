// SPDX-License-Identifier: Apache-2.0
// Runs the whole program on the repository's texts, about 20 seconds of computing, and on small
// files of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "examples/printed_numbers.h"
#include "examples/run_program.h"

namespace lockstep::examples {
namespace {

using testing::HasSubstr;

ProgramResult run(std::vector<std::string> files) {
  // Waiting threads of OpenMP would take the cores from other tests.
  setenv("OMP_WAIT_POLICY", "passive", /*overwrite=*/1);
  files.insert(files.begin(), "examples/character_lstm");
  return run_program(files);
}

TEST(CharacterLstmTest, LearnsTheTextsOfTheRepository) {
  const ProgramResult result = run({});
  ASSERT_EQ(result.exit_code, 0) << result.error;
  const auto trained = printed_numbers(result.out, "character");
  const auto unseen = printed_numbers(result.out, "text");
  ASSERT_EQ(trained.size(), 15u) << result.out;
  ASSERT_EQ(unseen.size(), 15u) << result.out;
  EXPECT_LT(trained.back(), trained.front() / 2) << result.out;
  EXPECT_LT(unseen.back(), 3) << result.out;
  EXPECT_THAT(result.out, HasSubstr("\nA replica "));
}

TEST(CharacterLstmTest, FindsTheRuleOfAFileThatIsNamed) {
  const std::string path = testing::TempDir() + "/alphabet.txt";
  std::ofstream file(path);
  for (int i = 0; i < 400; ++i) file << "abcdefghijklm. ";
  file.close();
  const ProgramResult result = run({path});
  ASSERT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.out, HasSubstr("6000 characters"));
  EXPECT_LT(printed_numbers(result.out, "text").back(), 0.5) << result.out;
  EXPECT_THAT(result.out, HasSubstr("abcdefghijklm. abcdefghijklm. "));
}

TEST(CharacterLstmTest, NamesAFileThatCannotBeRead) {
  const ProgramResult result = run({"/no/such/file"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.error, HasSubstr("\"/no/such/file\" cannot be read"));
}

}  // namespace
}  // namespace lockstep::examples
