// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/paired.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::benchmarks {
namespace {

using ::testing::ElementsAre;

// A machine whose clock moves only when a side works.
class FakeMachine {
 public:
  Meter meter() {
    return {[this] { return now_; }, [this] { return waited_; }};
  }
  // A side whose steps take `seconds`, times the current speed.
  Side side(const std::string& name, double seconds) {
    return {name, [this, name, seconds] { work(name, seconds); }};
  }
  void work(const std::string& name, double seconds) {
    now_ += seconds * slowness_;
    log_.push_back(name);
  }
  void interrupt(double seconds = 1) { waited_ += seconds; }
  void set_slowness(double slowness) { slowness_ = slowness; }
  void advance(double seconds) { now_ += seconds; }
  std::vector<std::string>& log() { return log_; }

 private:
  double now_ = 0;
  double waited_ = 0;
  double slowness_ = 1;
  std::vector<std::string> log_;
};

// One step a block, nothing untimed: each test adds what it is about.
PairedOptions bare_options(int64_t pairs) {
  PairedOptions options;
  options.pairs = pairs;
  options.warmup_steps = 0;
  options.min_steps = 1;
  options.block_seconds = 0;
  options.settle_seconds = 0;
  options.tolerated_wait = 0;
  return options;
}

TEST(PairedTest, SidesTakeTurns) {
  FakeMachine machine;
  PairedRun run({machine.side("a", 1), machine.side("b", 2)}, {{1, 0}}, bare_options(3),
                machine.meter());
  // The first two are the steps that find the block length.
  EXPECT_THAT(machine.log(), ElementsAre("a", "b", "a", "b", "a", "b", "a", "b"));
  EXPECT_EQ(run.rounds(), 3);
}

TEST(PairedTest, ReportsTheRatioOfSecondsPerStep) {
  FakeMachine machine;
  PairedRun run({machine.side("a", 1), machine.side("b", 2.5)}, {{1, 0}}, bare_options(30),
                machine.meter());
  ASSERT_TRUE(run.ratio({1, 0}).has_value());
  EXPECT_DOUBLE_EQ(run.ratio({1, 0})->median, 2.5);
  EXPECT_DOUBLE_EQ(run.ratio({0, 1})->median, 0.4);
  EXPECT_DOUBLE_EQ(run.median_seconds(1), 2.5);
  EXPECT_DOUBLE_EQ(run.min_seconds(0), 1);
}

TEST(PairedTest, ADriftOfTheMachineCancelsWithinPairs) {
  FakeMachine machine;
  Side first = machine.side("a", 1);
  first.enter = [&machine, slowness = 1.0]() mutable { machine.set_slowness(slowness += 0.5); };
  PairedRun run({first, machine.side("b", 2)}, {{1, 0}}, bare_options(30), machine.meter());
  EXPECT_DOUBLE_EQ(run.ratio({1, 0})->median, 2);
  EXPECT_NEAR(run.ratio({1, 0})->low, 2, 1e-9);
  EXPECT_NEAR(run.ratio({1, 0})->high, 2, 1e-9);
}

TEST(PairedTest, DropsPairsInWhichASideWasInterrupted) {
  FakeMachine machine;
  // One block in four is interrupted. With it, the median would be 2.5.
  const std::vector<double> seconds{2, 2, 3, 100};
  size_t blocks = 0;
  Side noisy{"b", [&] {
               const size_t block = blocks++ % seconds.size();
               if (block == 3) machine.interrupt();
               machine.work("b", seconds[block]);
             }};
  PairedRun run({machine.side("a", 1), noisy}, {{1, 0}}, bare_options(30), machine.meter());
  EXPECT_EQ(run.undisturbed({1, 0}), 30);
  EXPECT_EQ(run.rounds(), 40);
  ASSERT_TRUE(run.ratio({1, 0}).has_value());
  EXPECT_DOUBLE_EQ(run.ratio({1, 0})->median, 2);
}

TEST(PairedTest, ABusyMachineGivesNoRatio) {
  FakeMachine machine;
  int64_t blocks = 0;
  Side noisy{"b", [&] {
               if (++blocks % 2 == 0) machine.interrupt();
               machine.work("b", 2);
             }};
  PairedRun run({machine.side("a", 1), noisy}, {{1, 0}}, bare_options(30), machine.meter());
  EXPECT_FALSE(run.ratio({1, 0}).has_value());
  // Given up after the number of rounds that would have been enough with 30 % dropped.
  EXPECT_EQ(run.rounds(), 43);
  EXPECT_LT(run.undisturbed({1, 0}), 30);
}

TEST(PairedTest, AComparisonIsSparedTheNoiseOfASideItDoesNotHold) {
  FakeMachine machine;
  Side noisy{"c", [&] {
               machine.interrupt();
               machine.work("c", 1);
             }};
  PairedRun run({machine.side("a", 1), machine.side("b", 3), noisy}, {{1, 0}, {2, 0}},
                bare_options(10), machine.meter());
  EXPECT_TRUE(run.ratio({1, 0}).has_value());
  EXPECT_FALSE(run.ratio({2, 0}).has_value());
}

TEST(PairedTest, KeepsEveryPairIfAskedTo) {
  FakeMachine machine;
  Side noisy{"b", [&] {
               machine.interrupt();
               machine.work("b", 2);
             }};
  PairedOptions options = bare_options(3);
  options.max_dropped = 1;
  PairedRun run({machine.side("a", 1), noisy}, {{1, 0}}, options, machine.meter());
  EXPECT_EQ(run.rounds(), 3);
  ASSERT_TRUE(run.ratio({1, 0}).has_value());
  EXPECT_DOUBLE_EQ(run.ratio({1, 0})->median, 2);
}

TEST(PairedTest, ToleratesWaitingInProportionToTheBlock) {
  FakeMachine machine;
  Side noisy{"b", [&] {
               machine.interrupt(0.5);
               machine.work("b", 2);
             }};
  PairedOptions options = bare_options(3);
  options.tolerated_wait = 0.25;
  PairedRun tolerant({machine.side("a", 1), noisy}, {{1, 0}}, options, machine.meter());
  EXPECT_EQ(tolerant.undisturbed({1, 0}), 3);
  options.tolerated_wait = 0.24;
  PairedRun strict({machine.side("a", 1), noisy}, {{1, 0}}, options, machine.meter());
  EXPECT_EQ(strict.undisturbed({1, 0}), 0);
}

TEST(PairedTest, WarmsUpAndSettlesWithoutTiming) {
  FakeMachine machine;
  int64_t steps = 0;
  // The first seven steps are slow: five of warm-up, one that finds the block length, one settles.
  Side side{"a", [&] { machine.work("a", ++steps <= 7 ? 50 : 1); }};
  PairedOptions options = bare_options(2);
  options.warmup_steps = 5;
  options.settle_seconds = 0.5;
  PairedRun run({side}, {{0, 0}}, options, machine.meter());
  EXPECT_DOUBLE_EQ(run.min_seconds(0), 1);
  EXPECT_DOUBLE_EQ(run.samples(0).front().seconds, 1);
}

TEST(PairedTest, ShortStepsMakeLongerBlocks) {
  FakeMachine machine;
  PairedOptions options = bare_options(1);
  options.min_steps = 3;
  options.block_seconds = 10;
  PairedRun run({machine.side("short", 0.5), machine.side("long", 60)}, {{1, 0}}, options,
                machine.meter());
  EXPECT_EQ(run.steps_per_block(0), 20);
  EXPECT_EQ(run.steps_per_block(1), 3);
  EXPECT_DOUBLE_EQ(run.median_seconds(0), 0.5);
}

TEST(PairedTest, StepsThatTakeNoTimeStillEnd) {
  FakeMachine machine;
  PairedOptions options = bare_options(1);
  options.block_seconds = 10;
  PairedRun run({{"free", [] {}}, machine.side("a", 1)}, {{1, 1}}, options, machine.meter());
  EXPECT_EQ(run.steps_per_block(0), 2000);
}

TEST(PairedTest, HooksRunAroundEveryStepAndAreNotTimed) {
  FakeMachine machine;
  Side side = machine.side("step", 1);
  side.before = [&] { machine.work("before", 10); };
  side.after = [&] { machine.work("after", 100); };
  PairedOptions options = bare_options(1);
  options.min_steps = 2;
  PairedRun run({side}, {{0, 0}}, options, machine.meter());
  EXPECT_DOUBLE_EQ(run.median_seconds(0), 1);
  EXPECT_THAT(machine.log(), ElementsAre("before", "step", "after", "before", "step", "after",
                                         "before", "step", "after"));
}

TEST(PairedTest, RefusesNonsense) {
  FakeMachine machine;
  const std::vector<Side> sides{machine.side("a", 1)};
  EXPECT_THROW(PairedRun({}, {{0, 0}}, bare_options(1), machine.meter()), std::invalid_argument);
  EXPECT_THROW(PairedRun(sides, {}, bare_options(1), machine.meter()), std::invalid_argument);
  EXPECT_THROW(PairedRun(sides, {{0, 1}}, bare_options(1), machine.meter()), std::invalid_argument);
  EXPECT_THROW(PairedRun(sides, {{0, 0}}, bare_options(0), machine.meter()), std::invalid_argument);
}

TEST(PairedTest, AFailureOfASideReachesTheCaller) {
  FakeMachine machine;
  Side broken{"broken", [] { throw std::runtime_error("wrong result"); }};
  EXPECT_THROW(PairedRun({broken}, {{0, 0}}, bare_options(1), machine.meter()), std::runtime_error);
}

TEST(PairedTest, TheProcessMeterMovesForward) {
  const Meter meter = process_meter();
  const double start = meter.seconds();
  EXPECT_GE(meter.seconds(), start);
}

TEST(PairedTest, TheProcessMeterSeesThreadsThatWaitForACore) {
  // Three times as many threads as cores: some always wait.
  const Meter meter = process_meter();
  const double waited = meter.seconds_waited();
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 3 * std::max(1u, std::thread::hardware_concurrency()); ++i) {
    threads.emplace_back([&] {
      while (!done) {
      }
    });
  }
  const double start = meter.seconds();
  while (meter.seconds_waited() - waited < 0.01 && meter.seconds() - start < 60) {
  }
  const double risen = meter.seconds_waited() - waited;
  done = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(risen, 0.01);
}

}  // namespace
}  // namespace lockstep::benchmarks
