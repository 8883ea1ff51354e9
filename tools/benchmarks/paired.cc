// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/paired.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <system_error>

namespace lockstep::benchmarks {
namespace {

constexpr int64_t kMaxSteps = 2000;

void call(const std::function<void()>& function) {
  if (function) function();
}

void untimed_step(const Side& side) {
  call(side.before);
  side.step();
  call(side.after);
}

// Enough steps for a block of the wanted length, going by how long whole steps take.
int64_t warm_up(const Side& side, const PairedOptions& options, const Meter& meter) {
  call(side.enter);
  for (int64_t i = 0; i < options.warmup_steps; ++i) untimed_step(side);
  const double start = meter.seconds();
  untimed_step(side);
  const double step = meter.seconds() - start;
  if (step * static_cast<double>(kMaxSteps) <= options.block_seconds) return kMaxSteps;
  const auto wanted = static_cast<int64_t>(std::ceil(options.block_seconds / step));
  return std::min(kMaxSteps, std::max(options.min_steps, wanted));
}

Sample run_block(const Side& side, int64_t steps, const PairedOptions& options,
                 const Meter& meter) {
  call(side.enter);
  if (options.settle_seconds > 0) {
    const double start = meter.seconds();
    do {
      untimed_step(side);
    } while (meter.seconds() - start < options.settle_seconds);
  }
  const double waited_before = meter.seconds_waited();
  const double start = meter.seconds();
  double timed = 0;
  if (side.before || side.after) {
    for (int64_t i = 0; i < steps; ++i) {
      call(side.before);
      const double step_start = meter.seconds();
      side.step();
      timed += meter.seconds() - step_start;
      call(side.after);
    }
  } else {
    for (int64_t i = 0; i < steps; ++i) side.step();
    timed = meter.seconds() - start;
  }
  const double whole = meter.seconds() - start;
  const double waited = meter.seconds_waited() - waited_before;
  return {timed / static_cast<double>(steps), waited > whole * options.tolerated_wait};
}

void require(bool condition, const char* message) {
  if (!condition) throw std::invalid_argument(message);
}

}  // namespace

Meter process_meter() {
  Meter meter;
  meter.seconds = [] {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(now).count();
  };
  meter.seconds_waited = [] {
    double waited = 0;
    bool known = false;
    std::error_code ignored;  // a thread may end meanwhile
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
      std::ifstream schedstat(task.path() / "schedstat");
      int64_t ran = 0;
      int64_t nanoseconds = 0;
      if (schedstat >> ran >> nanoseconds) {
        known = true;
        waited += 1e-9 * static_cast<double>(nanoseconds);
      }
    }
    if (!known) {
      rusage usage{};
      getrusage(RUSAGE_SELF, &usage);
      waited = 1e-3 * static_cast<double>(usage.ru_nivcsw);
    }
    return waited;
  };
  return meter;
}

PairedRun::PairedRun(const std::vector<Side>& sides, const std::vector<Comparison>& comparisons,
                     const PairedOptions& options, const Meter& meter)
    : options_(options), samples_(sides.size()) {
  require(!sides.empty(), "[PairedRun] expected at least one side, got none");
  require(!comparisons.empty(), "[PairedRun] expected at least one comparison, got none");
  require(options.pairs >= 1, "[PairedRun] expected options.pairs of at least 1");
  for (const Comparison& comparison : comparisons) {
    require(std::max(comparison.numerator, comparison.denominator) < sides.size(),
            "[PairedRun] expected comparisons of the given sides");
  }
  for (const Side& side : sides) steps_.push_back(warm_up(side, options, meter));
  // With this many rounds, missing pairs mean that more than max_dropped of them were dropped.
  const double kept = options.max_dropped < 1 ? 1 - options.max_dropped : 1;
  const auto max_rounds =
      static_cast<int64_t>(std::ceil(static_cast<double>(options.pairs) / kept));
  const auto satisfied = [&](const Comparison& c) { return undisturbed(c) >= options.pairs; };
  for (int64_t round = 0; round < max_rounds; ++round) {
    for (size_t i = 0; i < sides.size(); ++i) {
      samples_[i].push_back(run_block(sides[i], steps_[i], options, meter));
    }
    if (std::all_of(comparisons.begin(), comparisons.end(), satisfied)) break;
  }
}

int64_t PairedRun::undisturbed(Comparison comparison) const {
  const auto& a = samples_.at(comparison.numerator);
  const auto& b = samples_.at(comparison.denominator);
  int64_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!a[i].disturbed && !b[i].disturbed) ++count;
  }
  return count;
}

std::optional<RatioEstimate> PairedRun::ratio(Comparison comparison) const {
  const auto& a = samples_.at(comparison.numerator);
  const auto& b = samples_.at(comparison.denominator);
  const bool keep_all = options_.max_dropped >= 1;
  std::vector<double> ratios;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!keep_all && (a[i].disturbed || b[i].disturbed)) continue;
    ratios.push_back(a[i].seconds / b[i].seconds);
  }
  const double dropped = 1 - static_cast<double>(ratios.size()) / static_cast<double>(a.size());
  if (ratios.empty() || dropped > options_.max_dropped) return std::nullopt;
  return estimate_median(ratios);
}

std::vector<double> PairedRun::usable_seconds(size_t side) const {
  std::vector<double> calm;
  std::vector<double> all;
  for (const Sample& sample : samples_.at(side)) {
    all.push_back(sample.seconds);
    if (!sample.disturbed) calm.push_back(sample.seconds);
  }
  return calm.empty() ? all : calm;
}

double PairedRun::median_seconds(size_t side) const { return median(usable_seconds(side)); }

double PairedRun::min_seconds(size_t side) const {
  const std::vector<double> seconds = usable_seconds(side);
  return *std::min_element(seconds.begin(), seconds.end());
}

}  // namespace lockstep::benchmarks
