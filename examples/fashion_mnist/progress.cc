// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/progress.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ostream>
#include <utility>

namespace fashion_mnist {
namespace {

constexpr double kTerminalInterval = 0.1;  // seconds between two drawings
constexpr double kPlainInterval = 10.0;
constexpr int64_t kBarCells = 24;

template <class... Args>
std::string format(const char* pattern, Args... args) {
  char buffer[160];
  std::snprintf(buffer, sizeof buffer, pattern, args...);
  return buffer;
}

std::string bar(double fraction) {
  const auto filled = static_cast<int64_t>(fraction * kBarCells);
  return "[" + std::string(filled, '#') + std::string(kBarCells - filled, '.') + "]";
}

}  // namespace

double steady_seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

bool is_terminal(int file_descriptor) { return isatty(file_descriptor) == 1; }

std::string format_seconds(double seconds) {
  const long long whole = std::llround(std::max(seconds, 0.0));
  if (whole < 60) return format("%lld s", whole);
  if (whole < 3600) return format("%lld:%02lld", whole / 60, whole % 60);
  return format("%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
}

Progress::Progress(std::ostream& out, ProgressOptions options)
    : out_(out),
      options_(std::move(options)),
      start_(options_.now_seconds()),
      next_drawing_(options_.terminal ? start_ : start_ + kPlainInterval) {}

void Progress::update(int64_t done, const std::function<double()>& loss) {
  const double now = options_.now_seconds();
  if (now < next_drawing_ || done >= options_.total) return;
  next_drawing_ = now + (options_.terminal ? kTerminalInterval : kPlainInterval);
  show(line(done, loss()));
}

void Progress::finish(int64_t done, double loss) {
  show(line(done, loss));
  if (options_.terminal) out_ << std::endl;
}

double Progress::elapsed_seconds() const { return options_.now_seconds() - start_; }

std::string Progress::line(int64_t done, double loss) const {
  const double elapsed = elapsed_seconds();
  const double rate = elapsed > 0 ? static_cast<double>(done) / elapsed : 0;
  const double fraction =
      options_.total > 0 ? std::min(1.0, static_cast<double>(done) / options_.total) : 1;
  std::string text = options_.label + "  ";
  if (options_.terminal) text += bar(fraction) + " ";
  text +=
      format("%3d %%  %.0f samples/s  loss %.4f  ", static_cast<int>(fraction * 100), rate, loss);
  if (done >= options_.total) return text + "took " + format_seconds(elapsed);
  if (rate <= 0) return text + "ETA ?";
  return text + "ETA " + format_seconds(static_cast<double>(options_.total - done) / rate);
}

void Progress::show(const std::string& text) {
  if (!options_.terminal) {
    out_ << text << std::endl;
    return;
  }
  // Blanks wipe what a longer line left behind.
  const size_t blanks = shown_width_ > text.size() ? shown_width_ - text.size() : 0;
  out_ << '\r' << text << std::string(blanks, ' ') << std::flush;
  shown_width_ = text.size();
}

}  // namespace fashion_mnist
