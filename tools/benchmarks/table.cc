// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/table.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <vector>

namespace lockstep::benchmarks {
namespace {

using Line = std::vector<std::string>;

constexpr size_t kTextColumns = 2;  // id and case; the rest are numbers, aligned to the right

std::string format(const std::optional<double>& value) {
  if (!value) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", *value);
  return text;
}

std::string interval(const Row& row) {
  if (!row.speedup_low || !row.speedup_high) return "-";
  return "[" + format(row.speedup_low) + ", " + format(row.speedup_high) + "]";
}

Line cells(const Row& row) {
  return {row.id,
          row.case_name,
          row.unit,
          format(row.ours),
          format(row.peer),
          format(row.limit),
          format(row.speedup),
          interval(row),
          format(row.limit_fraction),
          format(row.limit_fraction_low)};
}

}  // namespace

std::string format_table(const Report& report) {
  std::string text;
  for (const auto& [name, value] : report.machine) text += "# " + name + ": " + value + "\n";
  for (const std::string& note : report.notes) text += "# note: " + note + "\n";
  std::vector<Line> lines{{"id", "case", "unit", "ours", "peer", "limit", "speedup", "95 %",
                           "of_limit", "of_limit_low"}};
  for (const Row& row : report.rows) lines.push_back(cells(row));
  std::vector<size_t> widths(lines.front().size(), 0);
  for (const Line& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  for (const Line& line : lines) {
    std::string row;
    for (size_t i = 0; i < line.size(); ++i) {
      const std::string padding(widths[i] - line[i].size(), ' ');
      if (i > 0) row += "  ";
      row += i < kTextColumns ? line[i] + padding : padding + line[i];
    }
    text += row + "\n";
  }
  return text;
}

}  // namespace lockstep::benchmarks
