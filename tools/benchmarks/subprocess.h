// SPDX-License-Identifier: Apache-2.0
// subprocess: runs another program and waits for it.
#pragma once

#include <string>
#include <vector>

namespace lockstep::benchmarks {

struct Finished {
  int exit_code = 0;   // 128 + the signal's number if a signal ended it
  std::string output;  // standard output, if captured
};

struct SubprocessOptions {
  bool capture_output = false;  // otherwise the output goes where this program's goes
};

// Runs `arguments[0]`, found through PATH if it holds no slash, and waits for its end.
// Throws: std::runtime_error naming the program and the reason if it cannot be started.
Finished run_program(const std::vector<std::string>& arguments,
                     const SubprocessOptions& options = {});

}  // namespace lockstep::benchmarks
