// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::benchmarks {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// Three sides that take 1, 4 and 0.5 fake seconds; the last waits for a core as well.
class SessionTest : public ::testing::Test {
 protected:
  PairedRun run(const PairedOptions& options) {
    const auto takes = [this](double seconds) { return [this, seconds] { now_ += seconds; }; };
    const std::vector<Side> sides{
        {"ours", takes(1)}, {"peer", takes(4)}, {"limit", takes(0.5)}, {"noisy", [this] {
                                                                          now_ += 1;
                                                                          waited_ += 1;
                                                                        }}};
    return PairedRun(sides, {{1, 0}, {2, 0}}, options,
                     {[this] { return now_; }, [this] { return waited_; }});
  }

  double now_ = 0;
  double waited_ = 0;
};

TEST_F(SessionTest, ARowHoldsMediansInItsUnitAndRatios) {
  Session session({});
  session.add_case({"P1", "small", "ms", 0, 1, 2}, run(session.paired_options()));
  ASSERT_EQ(session.report().rows.size(), 1u);
  const Row& row = session.report().rows[0];
  EXPECT_EQ(row.id, "P1");
  EXPECT_EQ(row.case_name, "small");
  EXPECT_EQ(row.ours, 1000);
  EXPECT_EQ(row.peer, 4000);
  EXPECT_EQ(row.limit, 500);
  EXPECT_EQ(row.speedup, 4);
  EXPECT_EQ(row.limit_fraction, 0.5);
  EXPECT_EQ(row.better, "lower");
}

TEST_F(SessionTest, WithoutPeerOrLimitTheirColumnsStayEmpty) {
  Session session({});
  session.add_case({"P1", "small", "us", 0, std::nullopt, std::nullopt},
                   run(session.paired_options()));
  const Row& row = session.report().rows[0];
  EXPECT_EQ(row.ours, 1e6);
  EXPECT_EQ(row.peer, std::nullopt);
  EXPECT_EQ(row.speedup, std::nullopt);
  EXPECT_EQ(row.limit_fraction, std::nullopt);
}

TEST_F(SessionTest, ABusyMachineLeavesTheRowAndTheMeanEmpty) {
  Session session({});
  session.add_case({"P1", "calm", "ms", 0, 1, 2}, run(session.paired_options()));
  session.add_case({"P1", "busy", "ms", 0, 3, std::nullopt}, run(session.paired_options()));
  session.add_geomean("P1");
  ASSERT_EQ(session.report().rows.size(), 3u);
  EXPECT_EQ(session.report().rows[1].ours, std::nullopt);
  EXPECT_EQ(session.report().rows[1].speedup, std::nullopt);
  EXPECT_EQ(session.report().rows[2].speedup, std::nullopt);
  EXPECT_THAT(session.report().notes, Contains(HasSubstr("machine busy")));
  EXPECT_TRUE(session.all_checks_passed());
}

TEST_F(SessionTest, TheGeomeanIsOverTheCasesOfOneId) {
  Session session({});
  session.add_case({"P1", "a", "ms", 0, 1, 2}, run(session.paired_options()));  // 4
  session.add_case({"P1", "b", "ms", 2, 1, 2}, run(session.paired_options()));  // 8
  session.add_case({"P2", "a", "ms", 1, 0, 2}, run(session.paired_options()));  // 0.25
  session.add_geomean("P1");
  const Row& row = session.report().rows.back();
  EXPECT_EQ(row.case_name, "geomean");
  EXPECT_NEAR(*row.speedup, 5.656854249, 1e-6);
  EXPECT_NEAR(*row.limit_fraction, 0.7071067812, 1e-6);
  EXPECT_EQ(row.ours, std::nullopt);
}

TEST_F(SessionTest, ASelectionOfCasesHasNoGeomean) {
  SessionOptions options;
  options.cases = {"a"};
  Session session(options);
  EXPECT_TRUE(session.wants_case("a"));
  EXPECT_FALSE(session.wants_case("b"));
  session.add_case({"P1", "a", "ms", 0, 1, 2}, run(session.paired_options()));
  session.add_geomean("P1");
  EXPECT_EQ(session.report().rows.back().speedup, std::nullopt);
}

TEST_F(SessionTest, AnIdWithoutCasesHasNoGeomean) {
  Session session({});
  session.add_geomean("P1");
  EXPECT_TRUE(session.report().rows.empty());
}

TEST_F(SessionTest, WantsEverythingOrWhatWasNamed) {
  EXPECT_TRUE(Session({}).wants("P1"));
  SessionOptions options;
  options.rows = {"P3"};
  EXPECT_TRUE(Session(options).wants("P3"));
  EXPECT_FALSE(Session(options).wants("P1"));
  EXPECT_TRUE(Session(options).asked_for("P3"));
  EXPECT_FALSE(Session({}).asked_for("P3"));
}

TEST_F(SessionTest, AFailedCheckIsNotedAndRemembered) {
  Session session({});
  session.check(true, "never shown");
  EXPECT_TRUE(session.all_checks_passed());
  session.check(false, "gradients differ");
  EXPECT_FALSE(session.all_checks_passed());
  EXPECT_THAT(session.report().notes, Contains(HasSubstr("gradients differ")));
}

TEST_F(SessionTest, FullEffortMeetsTheRulesAndSmokeNeverRefuses) {
  EXPECT_GE(Session({}).paired_options().pairs, 30);
  EXPECT_GE(Session({}).paired_options().min_steps, 3);
  SessionOptions smoke;
  smoke.effort = Effort::kSmoke;
  EXPECT_EQ(Session(smoke).paired_options().max_dropped, 1);
}

TEST_F(SessionTest, AnUnknownUnitIsRefused) {
  Session session({});
  EXPECT_THROW(session.add_case({"P1", "a", "min", 0, 1, 2}, run(session.paired_options())),
               std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::benchmarks
