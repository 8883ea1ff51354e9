// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/subprocess.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace lockstep::benchmarks {
namespace {

[[noreturn]] void fail(const std::string& program, int error) {
  throw std::runtime_error("[run_program] expected to run " + program +
                           ", got: " + std::strerror(error));
}

std::string read_all(int descriptor) {
  std::string text;
  char buffer[4096];
  while (true) {
    const ssize_t count = read(descriptor, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(buffer, static_cast<size_t>(count));
  }
}

}  // namespace

Finished run_program(const std::vector<std::string>& arguments, const SubprocessOptions& options) {
  if (arguments.empty()) throw std::runtime_error("[run_program] expected a program, got none");
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  int ends[2] = {-1, -1};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (options.capture_output) {
    if (pipe2(ends, O_CLOEXEC) != 0) fail(arguments[0], errno);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  }
  pid_t child = 0;
  const int error = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (options.capture_output) close(ends[1]);
  Finished finished;
  if (error == 0 && options.capture_output) finished.output = read_all(ends[0]);
  if (options.capture_output) close(ends[0]);
  if (error != 0) fail(arguments[0], error);

  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) fail(arguments[0], errno);
  }
  finished.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return finished;
}

}  // namespace lockstep::benchmarks
