// SPDX-License-Identifier: Apache-2.0
// run: the program behind the flags: load data, then train, evaluate or check.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

namespace fashion_mnist {

struct RunOptions {
  std::string devices;  // as parse_devices reads it
  int64_t epochs = 0;   // in all, those of a loaded checkpoint included
  int64_t batch_size = 0;
  double lr = 0;
  uint64_t seed = 0;
  int64_t limit = 0;  // training samples, and test samples; 0: all
  std::string data_dir;
  std::string output_dir;
  std::string load;  // a checkpoint; empty: start anew
  bool check = false;
  bool terminal = false;  // whether `out` is one
};

// Throws:  std::runtime_error in one sentence that names the flag, for a value out of its range.
void validate(const RunOptions& options);

// Returns the exit code: 0; 1 if a check failed; kInterruptedExitCode after Ctrl-C.
// Throws:  std::runtime_error in one sentence for anything wrong with flags or files.
int run(const RunOptions& options, std::ostream& out);

}  // namespace fashion_mnist
