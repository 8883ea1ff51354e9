// SPDX-License-Identifier: Apache-2.0
// progress: how far a long loop is. On a terminal one line that redraws itself; elsewhere (a log, a
// pipe) a plain line now and then, so that logs stay readable.
//   Progress progress(std::cout, {"epoch 1/5", num_samples, is_terminal(1)});
//   progress.update(done, [&] { return loss.item<double>(); });
//   progress.finish(done, mean_loss);
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>

namespace fashion_mnist {

// Seconds since some fixed moment; never goes back.
double steady_seconds();

// Whether the file descriptor is a terminal.
bool is_terminal(int file_descriptor);

// 42 -> "42 s", 75 -> "1:15", 3700 -> "1:01:40".
std::string format_seconds(double seconds);

struct ProgressOptions {
  std::string label;
  int64_t total = 0;  // samples
  bool terminal = false;
  std::function<double()> now_seconds = steady_seconds;
};

class Progress {
 public:
  Progress(std::ostream& out, ProgressOptions options);

  // Shows the state after `done` samples, at most 10 times a second on a terminal and every 10
  // seconds elsewhere; the last state is left to finish(). `loss` is called only when something is
  // shown: reading it may make the host wait for a device.
  void update(int64_t done, const std::function<double()>& loss);

  // Shows the last state and ends the line.
  void finish(int64_t done, double loss);

  double elapsed_seconds() const;

 private:
  std::string line(int64_t done, double loss) const;
  void show(const std::string& text);

  std::ostream& out_;
  ProgressOptions options_;
  double start_;
  double next_drawing_;
  size_t shown_width_ = 0;
};

}  // namespace fashion_mnist
