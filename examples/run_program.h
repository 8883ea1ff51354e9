// SPDX-License-Identifier: Apache-2.0
// run_program: starts one of the example programs as a person would and looks at what it prints.
//   ProgramResult result = run_program({"examples/two_devices"});
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace lockstep::examples {

struct ProgramResult {
  int exit_code = -1;  // 128 + signal if a signal ended it
  std::string out;
  std::string error;
};

struct ProgramOptions {
  // Called with each whole line of standard output as it arrives; true sends SIGINT, once.
  std::function<bool(const std::string& line)> interrupt_after;
};

// Runs command[0] with the other entries as arguments and waits for its end.
// Throws:  std::runtime_error if it cannot be started.
ProgramResult run_program(const std::vector<std::string>& command,
                          const ProgramOptions& options = {});

}  // namespace lockstep::examples
