// SPDX-License-Identifier: Apache-2.0
// `bazel run benchmarks`: runs one program per group of rows, merges what they report, prints one
// table and writes it as JSON. Groups have programs of their own because they may not share a
// process. Exits with 1 if a result was wrong or a named row does not exist.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_join.h"
#include "tools/benchmarks/row.h"
#include "tools/benchmarks/subprocess.h"
#include "tools/benchmarks/table.h"

ABSL_FLAG(std::string, json, "", "File for the results, relative to where bazel was called");
ABSL_FLAG(std::vector<std::string>, rows, {}, "Ids of the rows to measure, as P1a,P3; empty: all");
ABSL_FLAG(std::vector<std::string>, cases, {}, "Names of the cases to measure; empty: all");
ABSL_FLAG(bool, quick, false, "Few pairs: minutes, for orientation, not for publication");
ABSL_FLAG(bool, smoke, false, "Each row once, only to see that it works");
ABSL_FLAG(double, max_dropped, 0.3, "Share of disturbed pairs above which nothing is reported");

namespace lockstep::benchmarks {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrograms[] = {"cpu_benchmarks", "simulated_benchmarks"};

// Bazel starts this program in its runfiles; by hand it lies beside the others.
fs::path find_program(const std::string& name) {
  const fs::path in_runfiles = fs::path("tools/benchmarks") / name;
  if (fs::exists(in_runfiles)) return fs::absolute(in_runfiles);
  const fs::path beside = fs::read_symlink("/proc/self/exe").parent_path() / name;
  if (fs::exists(beside)) return beside;
  throw std::runtime_error("[benchmarks] expected the program " + name + " in " +
                           in_runfiles.parent_path().string() + " or beside this one");
}

std::string read_file(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void write_file(const fs::path& file, const std::string& text) {
  std::ofstream out(file);
  out << text;
  out.close();
  if (!out.good()) throw std::runtime_error("[benchmarks] expected to write " + file.string());
}

// A folder of this process's own, gone with it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "lockstep_benchmarks_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
      throw std::runtime_error("[benchmarks] expected to make a folder " + name);
    }
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::vector<std::string> command_line(const std::string& program, const fs::path& json) {
  std::vector<std::string> command{find_program(program).string(), "--json=" + json.string()};
  command.push_back("--rows=" + absl::StrJoin(absl::GetFlag(FLAGS_rows), ","));
  command.push_back("--cases=" + absl::StrJoin(absl::GetFlag(FLAGS_cases), ","));
  command.push_back("--max_dropped=" + std::to_string(absl::GetFlag(FLAGS_max_dropped)));
  if (absl::GetFlag(FLAGS_quick)) command.push_back("--quick");
  if (absl::GetFlag(FLAGS_smoke)) command.push_back("--smoke");
  return command;
}

bool has_row(const Report& report, const std::string& id) {
  return std::any_of(report.rows.begin(), report.rows.end(),
                     [&](const Row& row) { return row.id == id; });
}

int run() {
  // Spinning threads of OpenMP take minutes where other tests run beside them. Times need them.
  if (absl::GetFlag(FLAGS_smoke)) setenv("OMP_WAIT_POLICY", "passive", /*overwrite=*/1);
  const TemporaryFolder folder;
  Report report;
  bool passed = true;
  for (const std::string program : kPrograms) {
    const fs::path json = folder.path() / (program + ".json");
    const Finished finished = run_program(command_line(program, json));
    if (finished.exit_code != 0) {
      std::fprintf(stderr, "benchmarks: %s failed with exit code %d\n", program.c_str(),
                   finished.exit_code);
      passed = false;
    }
    if (fs::exists(json)) merge(report, parse_report(read_file(json)));
  }
  std::printf("\n%s", format_table(report).c_str());
  for (const std::string& id : absl::GetFlag(FLAGS_rows)) {
    if (has_row(report, id)) continue;
    std::fprintf(stderr, "benchmarks: no result for row %s\n", id.c_str());
    passed = false;
  }
  const std::string json = absl::GetFlag(FLAGS_json);
  if (!json.empty()) {
    const char* caller = std::getenv("BUILD_WORKING_DIRECTORY");
    write_file(fs::path(caller != nullptr ? caller : ".") / json, to_json(report));
  }
  std::printf("%s\n", passed ? "all results were right" : "FAILED, see above");
  return passed ? 0 : 1;
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "Measures lockstep against its peers:\n"
      "  bazel run benchmarks -- [--quick] [--rows=P1a,P3] [--json=FILE]");
  absl::ParseCommandLine(argc, argv);
  try {
    return lockstep::benchmarks::run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "benchmarks: %s\n", error.what());
    return 1;
  }
}
