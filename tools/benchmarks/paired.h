// SPDX-License-Identifier: Apache-2.0
// paired: compares ways of doing the same work by running them in turns, A B A B, in one process.
//
// A machine's speed drifts by more than most differences worth measuring, so times of different
// minutes say little. Here every round runs each side once, a ratio is taken within a round, and
// the median over the rounds is reported. A round in which either side had to wait for a core is
// dropped; when too many are, there is no result: the machine was busy.
//
//   PairedRun run({{"ours", [&] { ours(); }}, {"theirs", [&] { theirs(); }}}, {{1, 0}}, {},
//                 process_meter());
//   if (auto speedup = run.ratio({1, 0})) print(speedup->median, speedup->low);
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/benchmarks/statistics.h"

namespace lockstep::benchmarks {

// One way of doing the work. Only `step` is timed; the other functions may be empty.
struct Side {
  std::string name;
  std::function<void()> step;
  std::function<void()> enter = nullptr;   // before a block of steps
  std::function<void()> before = nullptr;  // before every step
  std::function<void()> after = nullptr;   // after every step
};

// Where times come from. Tests inject their own.
struct Meter {
  std::function<double()> seconds;         // a clock that never goes back
  std::function<double()> seconds_waited;  // so far, by all threads that are alive
};

// Steady clock, and the time that threads were ready to run but had no core, from schedstat. Where
// the kernel does not tell that, every involuntary context switch counts as one millisecond.
Meter process_meter();

struct PairedOptions {
  int64_t pairs = 30;            // undisturbed rounds wanted for each comparison
  int64_t warmup_steps = 5;      // of each side, once
  int64_t min_steps = 3;         // in a block
  double block_seconds = 0.01;   // a block has more steps until it takes this long
  double settle_seconds = 0.02;  // untimed steps at the start of a block: threads of the side
                                 // before go to sleep, caches fill
  double max_dropped = 0.3;      // share of rounds; more means that the machine is busy
  // Seconds waited per second that pass. On a machine with as many threads as cores, each kernel
  // thread that wakes up costs some; another program that computes costs far more.
  double tolerated_wait = 0.02;
};

struct Sample {
  double seconds = 0;  // per step
  bool disturbed = false;
};

// Which sides a ratio is made of: seconds of `numerator` over seconds of `denominator`.
struct Comparison {
  size_t numerator = 0;
  size_t denominator = 0;
};

class PairedRun {
 public:
  // Runs the sides in turns until each of `comparisons` has options.pairs undisturbed rounds, or
  // cannot have them any more.
  // Throws: std::invalid_argument without sides, without comparisons, or if options.pairs < 1;
  //         whatever a side throws.
  PairedRun(const std::vector<Side>& sides, const std::vector<Comparison>& comparisons,
            const PairedOptions& options, const Meter& meter);

  // The median of the per-round ratios; nothing if more than options.max_dropped of the rounds
  // were disturbed.
  std::optional<RatioEstimate> ratio(Comparison comparison) const;

  // Seconds per step over undisturbed blocks; over all blocks if every one was disturbed.
  double median_seconds(size_t side) const;
  double min_seconds(size_t side) const;

  int64_t rounds() const { return static_cast<int64_t>(samples_.front().size()); }
  int64_t undisturbed(Comparison comparison) const;
  int64_t steps_per_block(size_t side) const { return steps_.at(side); }
  const std::vector<Sample>& samples(size_t side) const { return samples_.at(side); }

 private:
  std::vector<double> usable_seconds(size_t side) const;

  PairedOptions options_;
  std::vector<int64_t> steps_;
  std::vector<std::vector<Sample>> samples_;  // [side][round]
};

}  // namespace lockstep::benchmarks
