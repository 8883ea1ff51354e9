// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/session.h"

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <utility>

namespace lockstep::benchmarks {
namespace {

bool listed(const std::vector<std::string>& names, const std::string& name) {
  return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

double per_second(const std::string& unit) {
  if (unit == "s") return 1;
  if (unit == "ms") return 1e3;
  if (unit == "us") return 1e6;
  throw std::invalid_argument("[per_second] expected unit s, ms or us, got " + unit);
}

std::string format_ratio(double ratio) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", ratio);
  return text;
}

std::string side_text(const char* whose, const PairedRun& run, size_t side,
                      const std::string& unit) {
  return std::string(", ") + whose + " " + format_time(run.median_seconds(side), unit) + " (min " +
         format_time(run.min_seconds(side), unit) + ")";
}

void print(const std::string& line) {
  std::printf("# %s\n", line.c_str());
  std::fflush(stdout);
}

}  // namespace

std::string format_time(double seconds, const std::string& unit) {
  char text[48];
  std::snprintf(text, sizeof text, "%.4g %s", seconds * per_second(unit), unit.c_str());
  return text;
}

Session::Session(SessionOptions options) : options_(std::move(options)) {}

bool Session::wants(const std::string& id) const { return listed(options_.rows, id); }

bool Session::asked_for(const std::string& id) const { return !options_.rows.empty() && wants(id); }

bool Session::wants_case(const std::string& case_name) const {
  return listed(options_.cases, case_name);
}

PairedOptions Session::paired_options() const {
  PairedOptions options;
  options.max_dropped = options_.max_dropped;
  if (options_.effort == Effort::kQuick) {
    options.pairs = 9;
    options.warmup_steps = 2;
    options.min_steps = 1;
    options.block_seconds = 0.003;
    options.settle_seconds = 0.005;
  } else if (options_.effort == Effort::kSmoke) {
    options.pairs = 1;
    options.warmup_steps = 0;
    options.min_steps = 1;
    options.block_seconds = 0;
    options.settle_seconds = 0;
    options.max_dropped = 1;
  }
  return options;
}

void Session::add_case(const CaseSides& sides, const PairedRun& run) {
  const double scale = per_second(sides.unit);
  Estimates& estimates = estimates_[sides.id];
  estimates.unit = sides.unit;
  Row row;
  row.id = sides.id;
  row.case_name = sides.case_name;
  row.unit = sides.unit;
  std::string line = sides.id + " " + sides.case_name;
  line += ": " + std::to_string(run.rounds()) + " rounds of " +
          std::to_string(run.steps_per_block(sides.ours)) + " steps";
  line += side_text("ours", run, sides.ours, sides.unit);

  bool busy = false;
  if (sides.peer) {
    line += side_text("peer", run, *sides.peer, sides.unit);
    if (auto speedup = run.ratio({*sides.peer, sides.ours})) {
      row.peer = run.median_seconds(*sides.peer) * scale;
      row.speedup = speedup->median;
      row.speedup_low = speedup->low;
      row.speedup_high = speedup->high;
      line += ", speedup " + format_ratio(speedup->median);
      estimates.speedups.push_back(std::move(*speedup));
    } else {
      busy = true;
    }
  }
  if (sides.limit) {
    line += side_text("limit", run, *sides.limit, sides.unit);
    if (auto fraction = run.ratio({*sides.limit, sides.ours})) {
      row.limit = run.median_seconds(*sides.limit) * scale;
      row.limit_fraction = fraction->median;
      row.limit_fraction_low = fraction->low;
      line += ", of the limit " + format_ratio(fraction->median);
      estimates.limit_fractions.push_back(std::move(*fraction));
    } else {
      busy = true;
    }
  }
  if (!busy || row.speedup || row.limit_fraction) {
    row.ours = run.median_seconds(sides.ours) * scale;
  }
  report_.rows.push_back(row);
  if (!busy) print(line);
  if (busy) {
    estimates.complete = false;
    note(sides.id + " " + sides.case_name +
         ": machine busy, too many pairs were disturbed; not reported");
  }
}

void Session::add_geomean(const std::string& id) {
  const auto found = estimates_.find(id);
  if (found == estimates_.end()) return;
  const Estimates& estimates = found->second;
  Row row;
  row.id = id;
  row.case_name = kGeomeanCase;
  row.unit = estimates.unit;
  if (estimates.complete && options_.cases.empty()) {
    if (!estimates.speedups.empty()) {
      const RatioEstimate speedup = geometric_mean(estimates.speedups);
      row.speedup = speedup.median;
      row.speedup_low = speedup.low;
      row.speedup_high = speedup.high;
    }
    if (!estimates.limit_fractions.empty()) {
      const RatioEstimate fraction = geometric_mean(estimates.limit_fractions);
      row.limit_fraction = fraction.median;
      row.limit_fraction_low = fraction.low;
    }
  }
  report_.rows.push_back(row);
}

void Session::note(const std::string& text) {
  print(text);
  report_.notes.push_back(text);
}

void Session::check(bool passed, const std::string& what) {
  if (passed) return;
  all_checks_passed_ = false;
  note("WRONG RESULT: " + what);
}

}  // namespace lockstep::benchmarks
