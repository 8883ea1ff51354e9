// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/table.h"

#include <gtest/gtest.h>

namespace lockstep::benchmarks {
namespace {

TEST(TableTest, FactsComeFirstAndColumnsAlign) {
  Report report;
  report.machine = {{"cores", "2"}};
  report.notes = {"quick run"};
  Row busy;
  busy.id = "P1a-functional";
  busy.case_name = "conv64";
  report.rows = {{"P1a", "mlp64", "ms", "lower", 1.5, 12.0, 1.25, 8.0, 7.5, 8.5, 0.9, 0.85}, busy};
  EXPECT_EQ(format_table(report),
            "# cores: 2\n"
            "# note: quick run\n"
            "id              case    unit  ours  peer  limit  speedup        95 %  of_limit  "
            "of_limit_low\n"
            "P1a             mlp64     ms   1.5    12   1.25        8  [7.5, 8.5]       0.9  "
            "        0.85\n"
            "P1a-functional  conv64    ms     -     -      -        -           -         -  "
            "           -\n");
}

TEST(TableTest, AnEmptyReportIsItsHeading) {
  EXPECT_EQ(format_table({}),
            "id  case  unit  ours  peer  limit  speedup  95 %  of_limit  of_limit_low\n");
}

}  // namespace
}  // namespace lockstep::benchmarks
