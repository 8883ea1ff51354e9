// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/row.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace lockstep::benchmarks {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kNotes = "notes";

Json number(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

std::optional<double> optional_number(const Json& row, const char* key) {
  const Json& value = row.at(key);
  if (value.is_null()) return std::nullopt;
  return value.get<double>();
}

Json to_json(const Row& row) {
  return {{"id", row.id},
          {"case", row.case_name},
          {"unit", row.unit},
          {"better", row.better},
          {"ours", number(row.ours)},
          {"peer", number(row.peer)},
          {"limit", number(row.limit)},
          {"speedup", number(row.speedup)},
          {"speedup_low", number(row.speedup_low)},
          {"speedup_high", number(row.speedup_high)},
          {"limit_fraction", number(row.limit_fraction)},
          {"limit_fraction_low", number(row.limit_fraction_low)}};
}

Row parse_row(const Json& json) {
  Row row;
  row.id = json.at("id").get<std::string>();
  row.case_name = json.at("case").get<std::string>();
  row.unit = json.at("unit").get<std::string>();
  row.better = json.at("better").get<std::string>();
  row.ours = optional_number(json, "ours");
  row.peer = optional_number(json, "peer");
  row.limit = optional_number(json, "limit");
  row.speedup = optional_number(json, "speedup");
  row.speedup_low = optional_number(json, "speedup_low");
  row.speedup_high = optional_number(json, "speedup_high");
  row.limit_fraction = optional_number(json, "limit_fraction");
  row.limit_fraction_low = optional_number(json, "limit_fraction_low");
  return row;
}

}  // namespace

std::string to_json(const Report& report) {
  Json machine = Json::object();
  for (const auto& [name, value] : report.machine) machine[name] = value;
  machine[kNotes] = report.notes;
  Json rows = Json::array();
  for (const Row& row : report.rows) rows.push_back(to_json(row));
  const Json whole{{"machine", machine}, {"rows", rows}};
  return whole.dump(2) + "\n";
}

Report parse_report(const std::string& text) {
  try {
    const Json whole = Json::parse(text);
    Report report;
    for (const auto& [name, value] : whole.at("machine").items()) {
      if (name == kNotes) {
        report.notes = value.get<std::vector<std::string>>();
      } else {
        report.machine.emplace_back(name, value.get<std::string>());
      }
    }
    for (const Json& row : whole.at("rows")) report.rows.push_back(parse_row(row));
    return report;
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(std::string("[parse_report] ") + error.what());
  }
}

void merge(Report& report, const Report& more) {
  for (const auto& fact : more.machine) {
    const auto same_name = [&](const auto& known) { return known.first == fact.first; };
    if (std::none_of(report.machine.begin(), report.machine.end(), same_name)) {
      report.machine.push_back(fact);
    }
  }
  report.notes.insert(report.notes.end(), more.notes.begin(), more.notes.end());
  report.rows.insert(report.rows.end(), more.rows.begin(), more.rows.end());
}

}  // namespace lockstep::benchmarks
