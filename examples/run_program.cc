// SPDX-License-Identifier: Apache-2.0
#include "examples/run_program.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace lockstep::examples {
namespace {

void expect_zero(int code, const std::string& what) {
  if (code != 0) throw std::runtime_error(what + ": " + std::strerror(code));
}

struct Pipe {
  Pipe() { expect_zero(pipe(ends.data()) == 0 ? 0 : errno, "pipe"); }
  ~Pipe() {
    close_writer();
    close(ends[0]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int reader() const { return ends[0]; }
  int writer() const { return ends[1]; }
  void close_writer() {
    if (ends[1] >= 0) close(ends[1]);
    ends[1] = -1;
  }

  std::array<int, 2> ends{};
};

pid_t start(const std::vector<std::string>& command, const Pipe& out, const Pipe& error) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out.writer(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, error.writer(), STDERR_FILENO);
  for (const Pipe* pipe : {&out, &error}) {
    for (const int end : pipe->ends) posix_spawn_file_actions_addclose(&actions, end);
  }
  pid_t child = 0;
  const int code = posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  expect_zero(code, command[0]);
  return child;
}

// Appends what there is to read; false at the end.
bool read_some(int file, std::string& text) {
  std::array<char, 4096> buffer;
  const ssize_t got = read(file, buffer.data(), buffer.size());
  if (got > 0) text.append(buffer.data(), static_cast<size_t>(got));
  return got > 0;
}

// Hands each whole line of a growing text to a function, once.
class Lines {
 public:
  explicit Lines(std::function<bool(const std::string&)> function)
      : function_(std::move(function)) {}

  bool any_new(const std::string& text) {
    bool found = false;
    for (size_t end = text.find('\n', seen_); end != std::string::npos && function_;
         end = text.find('\n', seen_)) {
      found = function_(text.substr(seen_, end - seen_)) || found;
      seen_ = end + 1;
    }
    return found;
  }

 private:
  std::function<bool(const std::string&)> function_;
  size_t seen_ = 0;
};

}  // namespace

ProgramResult run_program(const std::vector<std::string>& command, const ProgramOptions& options) {
  Pipe out, error;
  const pid_t child = start(command, out, error);
  out.close_writer();
  error.close_writer();
  ProgramResult result;
  Lines lines(options.interrupt_after);
  bool interrupted = false;
  std::array<pollfd, 2> files{{{out.reader(), POLLIN, 0}, {error.reader(), POLLIN, 0}}};
  while (files[0].fd >= 0 || files[1].fd >= 0) {
    poll(files.data(), files.size(), -1);
    if (files[0].revents != 0 && !read_some(files[0].fd, result.out)) files[0].fd = -1;
    if (files[1].revents != 0 && !read_some(files[1].fd, result.error)) files[1].fd = -1;
    if (!interrupted && lines.any_new(result.out)) {
      interrupted = true;
      kill(child, SIGINT);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace lockstep::examples
