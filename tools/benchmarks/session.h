// SPDX-License-Identifier: Apache-2.0
// session: what one benchmark program does for the user: which rows are wanted, how much effort
// they get, and the report that grows meanwhile.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/benchmarks/paired.h"
#include "tools/benchmarks/row.h"
#include "tools/benchmarks/statistics.h"

namespace lockstep::benchmarks {

enum class Effort {
  kFull,   // figures that may be published
  kQuick,  // a few pairs, for orientation
  kSmoke,  // each row once, to see that it works; the figures mean nothing
};

struct SessionOptions {
  Effort effort = Effort::kFull;
  std::vector<std::string> rows;   // ids; empty means all
  std::vector<std::string> cases;  // names; empty means all. With some left out, no geomean.
  double max_dropped = 0.3;        // share of disturbed pairs above which nothing is reported
};

// One case of a measure: which sides of a finished run are whose.
struct CaseSides {
  std::string id;
  std::string case_name;
  std::string unit = "ms";  // "s", "ms" or "us"
  size_t ours = 0;
  std::optional<size_t> peer;
  std::optional<size_t> limit;
};

class Session {
 public:
  explicit Session(SessionOptions options);

  Effort effort() const { return options_.effort; }
  bool wants(const std::string& id) const;
  // Whether `id` was named, not only not excluded: for rows that take long.
  bool asked_for(const std::string& id) const;
  bool wants_case(const std::string& case_name) const;

  // The effort as the numbers of a paired run.
  PairedOptions paired_options() const;

  // Adds the row of one case and prints a line on it, minima included.
  void add_case(const CaseSides& sides, const PairedRun& run);

  // Adds the geometric mean over the cases of `id` added so far. Nothing is reported in it if a
  // case was left out or was refused because the machine was busy.
  void add_geomean(const std::string& id);

  // A line for the reader of the rows, printed now and kept in the report.
  void note(const std::string& text);

  // A result that had to be right. A failure is printed, noted and makes the program fail.
  void check(bool passed, const std::string& what);

  const Report& report() const { return report_; }
  Report& report() { return report_; }
  bool all_checks_passed() const { return all_checks_passed_; }

 private:
  struct Estimates {
    std::string unit;
    bool complete = true;
    std::vector<RatioEstimate> speedups;
    std::vector<RatioEstimate> limit_fractions;
  };

  SessionOptions options_;
  Report report_;
  std::map<std::string, Estimates> estimates_;  // by id
  bool all_checks_passed_ = true;
};

// "1.234 ms" for a time in seconds.
std::string format_time(double seconds, const std::string& unit);

}  // namespace lockstep::benchmarks
