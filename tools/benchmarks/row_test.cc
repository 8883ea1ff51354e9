// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/row.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace lockstep::benchmarks {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

Report sample_report() {
  Row measured{"P1a", "mlp64", "ms", "lower", 1.5, 12.0, 1.25, 8.0, 7.5, 8.5, 0.9, 0.85};
  Row busy;
  busy.id = "P3";
  busy.case_name = "n10";
  return {{{"commit", "abc"}, {"cores", "2"}}, {"one note"}, {measured, busy}};
}

TEST(RowTest, AReportSurvivesJson) {
  const Report report = parse_report(to_json(sample_report()));
  EXPECT_THAT(report.machine, ElementsAre(Pair("commit", "abc"), Pair("cores", "2")));
  EXPECT_THAT(report.notes, ElementsAre("one note"));
  ASSERT_EQ(report.rows.size(), 2u);
  const Row& row = report.rows[0];
  EXPECT_EQ(row.id, "P1a");
  EXPECT_EQ(row.case_name, "mlp64");
  EXPECT_EQ(row.unit, "ms");
  EXPECT_EQ(row.better, "lower");
  EXPECT_EQ(row.ours, 1.5);
  EXPECT_EQ(row.peer, 12.0);
  EXPECT_EQ(row.limit, 1.25);
  EXPECT_EQ(row.speedup, 8.0);
  EXPECT_EQ(row.speedup_low, 7.5);
  EXPECT_EQ(row.speedup_high, 8.5);
  EXPECT_EQ(row.limit_fraction, 0.9);
  EXPECT_EQ(row.limit_fraction_low, 0.85);
  EXPECT_EQ(report.rows[1].ours, std::nullopt);
}

TEST(RowTest, WhatWasNotMeasuredIsNull) {
  const std::string json = to_json(sample_report());
  for (const char* key : {"ours", "peer", "limit", "speedup", "speedup_low", "speedup_high",
                          "limit_fraction", "limit_fraction_low"}) {
    EXPECT_THAT(json, HasSubstr('"' + std::string(key) + "\": null"));
  }
}

TEST(RowTest, RejectsTextThatIsNoReport) {
  EXPECT_THROW(parse_report(""), std::runtime_error);
  EXPECT_THROW(parse_report("{}"), std::runtime_error);
  EXPECT_THROW(parse_report(R"({"machine": {}, "rows": [{"id": "P1a"}]})"), std::runtime_error);
}

TEST(RowTest, MergingKeepsTheFirstFactsAndAllRows) {
  Report report = sample_report();
  Report more;
  more.machine = {{"cores", "64"}, {"gpu", "none"}};
  more.notes = {"another"};
  more.rows.resize(1);
  more.rows[0].id = "P7";
  merge(report, more);
  EXPECT_THAT(report.machine,
              ElementsAre(Pair("commit", "abc"), Pair("cores", "2"), Pair("gpu", "none")));
  EXPECT_THAT(report.notes, ElementsAre("one note", "another"));
  ASSERT_EQ(report.rows.size(), 3u);
  EXPECT_EQ(report.rows.back().id, "P7");
}

}  // namespace
}  // namespace lockstep::benchmarks
