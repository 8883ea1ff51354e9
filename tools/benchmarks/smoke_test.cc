// SPDX-License-Identifier: Apache-2.0
// Runs every row of the benchmarks with the fewest repetitions. It asserts results, not times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "tools/benchmarks/row.h"
#include "tools/benchmarks/subprocess.h"

namespace lockstep::benchmarks {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

constexpr const char* kDriver = "tools/benchmarks/benchmarks";

class SmokeTest : public ::testing::Test {
 protected:
  // As under `bazel run`: the file named by --json lies where Bazel was called.
  void SetUp() override {
    folder_ = ::testing::TempDir();
    setenv("BUILD_WORKING_DIRECTORY", folder_.c_str(), /*overwrite=*/1);
    unsetenv("BUILD_WORKSPACE_DIRECTORY");
  }

  Finished run(const std::vector<std::string>& flags) {
    std::vector<std::string> command{kDriver, "--smoke", "--json=" + json_};
    command.insert(command.end(), flags.begin(), flags.end());
    return run_program(command, {/*capture_output=*/true});
  }

  Report report() {
    std::ifstream in(folder_ + "/" + json_);
    return parse_report({std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()});
  }

  std::string folder_;
  std::string json_ = "lockstep_smoke_test.json";
};

TEST_F(SmokeTest, EveryRowRunsAndGivesRightResults) {
  const Finished finished = run({});
  EXPECT_EQ(finished.exit_code, 0) << finished.output;
  EXPECT_THAT(finished.output, HasSubstr("all results were right"));
  const Report result = report();
  EXPECT_THAT(result.machine, Not(IsEmpty()));
  std::set<std::string> ids;
  std::set<std::string> with_mean;
  for (const Row& row : result.rows) {
    ids.insert(row.id);
    EXPECT_TRUE(row.speedup.has_value()) << row.id << " " << row.case_name;
    if (row.case_name == kGeomeanCase) {
      with_mean.insert(row.id);
    } else {
      EXPECT_GT(row.ours.value_or(0), 0) << row.id << " " << row.case_name;
      EXPECT_GT(row.peer.value_or(0), 0) << row.id << " " << row.case_name;
    }
  }
  // P19 compiles for minutes; it needs a checkout, which a test has not.
  EXPECT_THAT(ids, UnorderedElementsAre("P1a", "P1a-functional", "P2", "P2b", "P3", "P3-unchanged",
                                        "P18", "S1", "S2"));
  EXPECT_EQ(ids, with_mean);
}

TEST_F(SmokeTest, OnlyTheNamedRowsAndCasesRun) {
  EXPECT_EQ(run({"--rows=P3,P18", "--cases=n10-shared,n10"}).exit_code, 0);
  std::vector<std::string> cases;
  for (const Row& row : report().rows) cases.push_back(row.id + " " + row.case_name);
  EXPECT_THAT(cases, UnorderedElementsAre("P3 n10-shared", "P3 geomean", "P18 n10", "P18 geomean"));
}

TEST_F(SmokeTest, ARowThatDoesNotExistFails) {
  EXPECT_EQ(run({"--rows=P3,no_such_row", "--cases=n10-shared"}).exit_code, 1);
  EXPECT_THAT(report().notes, Contains(HasSubstr("smoke run")));
}

}  // namespace
}  // namespace lockstep::benchmarks
