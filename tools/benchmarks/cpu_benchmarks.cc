// SPDX-License-Identifier: Apache-2.0
// The rows that run on CPU replicas in one process. Started by the driver, benchmarks.cc, or by
// hand for one row. Exits with 1 if a result was wrong.
#include <c10/util/Exception.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "tools/benchmarks/compile_rows.h"
#include "tools/benchmarks/data_parallel_rows.h"
#include "tools/benchmarks/gradient_node_rows.h"
#include "tools/benchmarks/machine.h"
#include "tools/benchmarks/process_settings.h"
#include "tools/benchmarks/replica_sync_rows.h"
#include "tools/benchmarks/session.h"

ABSL_FLAG(std::string, json, "", "File for the report");
ABSL_FLAG(std::vector<std::string>, rows, {}, "Ids of the rows to measure; empty: all");
ABSL_FLAG(std::vector<std::string>, cases, {}, "Names of the cases to measure; empty: all");
ABSL_FLAG(bool, quick, false, "Few pairs: for orientation, not for publication");
ABSL_FLAG(bool, smoke, false, "Each row once, only to see that it works");
ABSL_FLAG(double, max_dropped, 0.3, "Share of disturbed pairs above which nothing is reported");

namespace {

using lockstep::benchmarks::Effort;
using lockstep::benchmarks::Session;

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
  if (!lockstep::benchmarks::is_optimised_build()) {
    session.note("this build is not optimised: use `bazel run benchmarks` or -c opt");
  }
  const double max_dropped = absl::GetFlag(FLAGS_max_dropped);
  if (max_dropped != lockstep::benchmarks::PairedOptions().max_dropped) {
    session.note("rows are reported with up to " + std::to_string(max_dropped) +
                 " of the pairs disturbed");
  }
}

int run() {
  lockstep::benchmarks::set_up_process();
  Session session({effort_from_flags(), absl::GetFlag(FLAGS_rows), absl::GetFlag(FLAGS_cases),
                   absl::GetFlag(FLAGS_max_dropped)});
  session.report().machine = lockstep::benchmarks::machine_facts();
  describe_conditions(session);
  lockstep::benchmarks::measure_replica_sync(session);
  lockstep::benchmarks::measure_gradient_nodes(session);
  lockstep::benchmarks::measure_data_parallel(session);
  lockstep::benchmarks::measure_compile_cost(session);

  const std::string file = absl::GetFlag(FLAGS_json);
  if (!file.empty()) {
    std::ofstream out(file);
    out << lockstep::benchmarks::to_json(session.report());
    out.close();
    TORCH_CHECK(out.good(), "[cpu_benchmarks] expected to write ", file, ", which failed");
  }
  return session.all_checks_passed() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Measures the rows that run on CPU replicas.");
  absl::ParseCommandLine(argc, argv);
  try {
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cpu_benchmarks: %s\n", error.what());
    return 1;
  }
}
