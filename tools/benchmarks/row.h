// SPDX-License-Identifier: Apache-2.0
// row: what a benchmark program reports, and its JSON form.
//
// Programs that may not share a process each write a Report; the driver merges them. The JSON is
//   {"machine": {...}, "rows": [{"id", "case", "unit", "better", "ours", "peer", "limit",
//    "speedup", "speedup_low", "speedup_high", "limit_fraction", "limit_fraction_low"}]}
// with null for what was not measured.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::benchmarks {

// The case that holds the geometric mean over the cases of one id.
inline constexpr const char* kGeomeanCase = "geomean";

struct Row {
  std::string id;           // of the measure
  std::string case_name;    // "case" in JSON
  std::string unit = "ms";  // of ours, peer and limit
  std::string better = "lower";
  std::optional<double> ours;
  std::optional<double> peer;
  std::optional<double> limit;
  std::optional<double> speedup;  // how many times better than the peer
  std::optional<double> speedup_low;
  std::optional<double> speedup_high;
  std::optional<double> limit_fraction;  // share of the limit reached; 1 is perfect
  std::optional<double> limit_fraction_low;
};

struct Report {
  // In the order of printing; strings in the JSON object "machine".
  std::vector<std::pair<std::string, std::string>> machine;
  // What a reader of the rows should know; the list "notes" of "machine".
  std::vector<std::string> notes;
  std::vector<Row> rows;
};

std::string to_json(const Report& report);

// Throws: std::runtime_error with the place and the reason if `text` is not such a report.
Report parse_report(const std::string& text);

// Appends rows and notes of `more`; machine facts that `report` has already stay as they are.
void merge(Report& report, const Report& more);

}  // namespace lockstep::benchmarks
