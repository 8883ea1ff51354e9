// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/machine.h"

#include <ATen/Version.h>
#include <sched.h>
#include <sys/utsname.h>
#include <torch/version.h>

#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "tools/benchmarks/process_settings.h"
#include "tools/benchmarks/subprocess.h"

namespace lockstep::benchmarks {
namespace {

constexpr const char* kUnknown = "unknown";

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// The commit of the checkout that `bazel run` was called in.
std::string commit() {
  const char* workspace = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  if (workspace == nullptr) return kUnknown;
  try {
    const std::vector<std::string> git{"git", "-C", workspace};
    const auto ask = [&](std::vector<std::string> question) {
      question.insert(question.begin(), git.begin(), git.end());
      return run_program(question, {true});
    };
    const Finished head = ask({"rev-parse", "--quiet", "--verify", "--short=12", "HEAD"});
    if (head.exit_code != 0) return kUnknown;
    const Finished changes = ask({"status", "--porcelain", "--untracked-files=no"});
    return first_line(head.output) + (changes.output.empty() ? "" : " with local changes");
  } catch (const std::runtime_error&) {
    return kUnknown;
  }
}

std::string build_mode() {
  std::string mode = is_optimised_build() ? "optimised" : "not optimised";
#ifdef NDEBUG
  mode += ", no assertions";
#else
  mode += ", assertions";
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  mode += ", sanitizer";
#endif
  return mode;
}

std::string compiler() {
#ifdef __clang__
  return __VERSION__;
#else
  return std::string("g++ ") + __VERSION__;
#endif
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos) {
      return line.substr(line.find(": ") + 2);
    }
  }
  return kUnknown;
}

std::string kernel() {
  utsname names{};
  if (uname(&names) != 0) return kUnknown;
  return std::string(names.sysname) + " " + names.release + " " + names.machine;
}

// The value of NAME in LibTorch's description of itself, "..., NAME=value, ...".
std::string libtorch_setting(const std::string& name) {
  const std::string config = at::show_config();
  const size_t start = config.find(name + "=");
  if (start == std::string::npos) return kUnknown;
  const size_t value = start + name.size() + 1;
  return config.substr(value, config.find_first_of(",\n", value) - value);
}

}  // namespace

bool is_optimised_build() {
#ifdef __OPTIMIZE__
  return true;
#else
  return false;
#endif
}

int available_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return CPU_COUNT(&set);
}

std::vector<std::pair<std::string, std::string>> machine_facts() {
  return {
      {"commit", commit()},
      {"build", build_mode()},
      {"compiler", compiler()},
      {"libtorch", TORCH_VERSION},
      {"blas", libtorch_setting("BLAS_INFO")},
      {"cpu", cpu_model()},
      {"cores", std::to_string(available_cores())},
      {"kernel", kernel()},
      {"threads", "1 inside operators unless a row says otherwise; 1 a replica"},
      {"allocator", describe_allocator()},
      {"denormals", "flushed to zero on all threads"},
  };
}

}  // namespace lockstep::benchmarks
