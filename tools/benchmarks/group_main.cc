// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/group_main.h"

#include <c10/util/Exception.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "tools/benchmarks/machine.h"
#include "tools/benchmarks/process_settings.h"

ABSL_FLAG(std::string, json, "", "File for the report");
ABSL_FLAG(std::vector<std::string>, rows, {}, "Ids of the rows to measure; empty: all");
ABSL_FLAG(std::vector<std::string>, cases, {}, "Names of the cases to measure; empty: all");
ABSL_FLAG(bool, quick, false, "Few pairs: for orientation, not for publication");
ABSL_FLAG(bool, smoke, false, "Each row once, only to see that it works");
ABSL_FLAG(double, max_dropped, 0.3, "Share of disturbed pairs above which nothing is reported");

namespace lockstep::benchmarks {
namespace {

Effort effort_from_flags() {
  if (absl::GetFlag(FLAGS_smoke)) return Effort::kSmoke;
  return absl::GetFlag(FLAGS_quick) ? Effort::kQuick : Effort::kFull;
}

void describe_conditions(Session& session) {
  if (session.effort() != Effort::kFull) {
    session.note(session.effort() == Effort::kQuick
                     ? "quick run: few pairs, for orientation, not for publication"
                     : "smoke run: the figures mean nothing");
  }
  if (!is_optimised_build()) {
    session.note("this build is not optimised: use `bazel run benchmarks` or -c opt");
  }
  const double max_dropped = absl::GetFlag(FLAGS_max_dropped);
  if (max_dropped != PairedOptions().max_dropped) {
    session.note("rows are reported with up to " + std::to_string(max_dropped) +
                 " of the pairs disturbed");
  }
}

int run(const std::function<void(Session&)>& measure) {
  set_up_process();
  Session session({effort_from_flags(), absl::GetFlag(FLAGS_rows), absl::GetFlag(FLAGS_cases),
                   absl::GetFlag(FLAGS_max_dropped)});
  session.report().machine = machine_facts();
  describe_conditions(session);
  measure(session);

  const std::string file = absl::GetFlag(FLAGS_json);
  if (!file.empty()) {
    std::ofstream out(file);
    out << to_json(session.report());
    out.close();
    TORCH_CHECK(out.good(), "[benchmarks] expected to write ", file, ", which failed");
  }
  return session.all_checks_passed() ? 0 : 1;
}

}  // namespace

int group_main(int argc, char** argv, const char* usage,
               const std::function<void(Session&)>& measure) {
  absl::SetProgramUsageMessage(usage);
  absl::ParseCommandLine(argc, argv);
  try {
    return run(measure);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}

}  // namespace lockstep::benchmarks
