// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/compile_rows.h"

#include <ATen/Version.h>
#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tools/benchmarks/subprocess.h"

namespace lockstep::benchmarks {
namespace {

namespace fs = std::filesystem;

// Which headers of this project the trainer includes; also the index of the side.
enum class Headers : size_t { kOne, kUmbrella, kNone };

constexpr int64_t kPairs = 2;

// Where things lie, for a program that was started by `bazel run`.
struct Places {
  fs::path checkout;  // with the headers of this project
  fs::path runtime;   // a shared library of all of its code
  fs::path libtorch;  // with include/ and lib/
};

fs::path libtorch_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&at::show_config), &info) == 0) return {};
  return fs::canonical(info.dli_fname).parent_path().parent_path();
}

std::optional<Places> find_places() {
  const char* checkout = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  if (checkout == nullptr) return std::nullopt;
  const Places places{checkout, fs::absolute("tools/benchmarks/liblockstep.so"), libtorch_folder()};
  const bool complete = fs::exists(places.checkout / "lockstep.h") && fs::exists(places.runtime) &&
                        fs::exists(places.libtorch / "include/ATen/ATen.h");
  return complete ? std::optional(places) : std::nullopt;
}

// Compiles and links the trainer, with this project or without.
void build_trainer(const Places& places, Headers headers, const fs::path& output) {
  const char* compiler = std::getenv("CXX");
  const std::string include = (places.libtorch / "include").string();
  const std::string libraries = (places.libtorch / "lib").string();
  std::vector<std::string> command{compiler != nullptr ? compiler : "g++", "-std=c++17", "-O2"};
  const auto add = [&](const std::vector<std::string>& more) {
    command.insert(command.end(), more.begin(), more.end());
  };
  add({"-isystem", include, "-isystem", include + "/torch/csrc/api/include"});
  if (headers != Headers::kNone) add({"-DWITH_LOCKSTEP", "-iquote", places.checkout.string()});
  if (headers == Headers::kUmbrella) add({"-include", (places.checkout / "lockstep.h").string()});
  add({(places.checkout / "tools/benchmarks/hello_trainer.cc").string()});
  if (headers != Headers::kNone) add({places.runtime.string()});
  // What LibTorch's own libraries need is found when the program starts.
  add({"-L" + libraries, "-ltorch_cpu", "-lc10", "-Wl,--allow-shlib-undefined", "-o",
       output.string()});
  const Finished finished = run_program(command);
  if (finished.exit_code != 0) {
    throw std::runtime_error("[build_trainer] expected " + command.front() +
                             " to succeed, got exit code " + std::to_string(finished.exit_code));
  }
}

// Processor seconds of the programs that this one has run.
double child_seconds() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

void measure_compile_cost(Session& session) {
  if (!session.wants("P19")) return;
  if (session.effort() != Effort::kFull && !session.asked_for("P19")) return;
  const std::optional<Places> places = find_places();
  if (!places) {
    session.note("P19: not measured, it needs the checkout: start it with `bazel run benchmarks`");
    return;
  }
  const fs::path output =
      fs::temp_directory_path() / ("lockstep_hello_trainer_" + std::to_string(getpid()));
  const auto side = [&](const std::string& name, Headers headers) {
    return Side{name, [&, headers] { build_trainer(*places, headers, output); }};
  };
  const std::vector<Side> sides{side("data_parallel.h", Headers::kOne),
                                side("lockstep.h", Headers::kUmbrella),
                                side("torch/torch.h alone", Headers::kNone)};
  PairedOptions options;
  options.pairs = kPairs;
  options.warmup_steps = 0;
  options.min_steps = 1;
  options.block_seconds = 0;
  options.settle_seconds = 0;
  const Meter compiler_time{child_seconds, [] { return int64_t{0}; }};
  const auto peer = static_cast<size_t>(Headers::kNone);
  const PairedRun run(sides, {{peer, 0}, {peer, 1}}, options, compiler_time);
  fs::remove(output);
  for (size_t ours = 0; ours < peer; ++ours) {
    session.add_case({"P19", sides[ours].name, "s", ours, peer, peer}, run);
  }
  session.note("P19: " + std::to_string(kPairs) + " pairs, in processor seconds of the compiler");
  session.add_geomean("P19");
}

}  // namespace lockstep::benchmarks
