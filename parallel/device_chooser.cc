// SPDX-License-Identifier: Apache-2.0
#include "parallel/device_chooser.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep::parallel::internal {
namespace {

// See Note [Replicas or one device].
constexpr size_t kWarmUpSteps = 3;  // of each way
constexpr size_t kPlanStart = 2 * kWarmUpSteps;
constexpr size_t kBlockSteps = 4;
constexpr size_t kPairSteps = 2 * kBlockSteps;
constexpr size_t kLookSteps = 2 * kPairSteps;
constexpr size_t kMaxPairs = 12;

// Replicas win if their time is below this share of that on one device. Few ratios have to be
// further off than many: steps in a row tend to be slow together.
constexpr double kWinningRatio = 0.995;
constexpr double kFirstLookFactor = 1.1;

constexpr int64_t kMaxForwards = 8;  // in a step
constexpr int64_t kMaxUnusualInARow = 8;

// + - - + - + + - ..., the sequence of Thue and Morse: in its sums a steady growth cancels, and a
// growing one nearly.
bool block_has_replicas(size_t block) {
  bool even = true;
  for (; block != 0; block &= block - 1) {
    even = !even;
  }
  return even;
}

// What more than half of `values` are.
std::optional<int64_t> majority(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  const int64_t middle = values[values.size() / 2];
  const auto count = static_cast<size_t>(std::count(values.begin(), values.end(), middle));
  return 2 * count > values.size() ? std::optional(middle) : std::nullopt;
}

// Sorted times of replicas over those on one device; `seconds` begins with the first block.
std::vector<double> sorted_ratios(const double* seconds, size_t num_pairs) {
  std::vector<double> ratios;
  for (size_t pair = 0; pair < num_pairs; ++pair) {
    const double* replicas = seconds + pair * kPairSteps;
    const double* one_device = replicas + kBlockSteps;
    if (!block_has_replicas(2 * pair)) {
      std::swap(replicas, one_device);
    }
    for (size_t i = 1; i < kBlockSteps; ++i) {
      ratios.push_back(replicas[i] / one_device[i]);
    }
  }
  std::sort(ratios.begin(), ratios.end());
  return ratios;
}

// How many of n independent values may be left out at either end, so that the rest still spans
// their true median 99 times in 100 (97 for six): quantiles of the sign test.
size_t num_outside(size_t n) {
  const auto count = static_cast<double>(n);
  return static_cast<size_t>(std::max(0.0, std::round(count / 2 - 1.29 * std::sqrt(count)) - 1));
}

}  // namespace

DeviceChoice DeviceChooser::next(int64_t rows, bool updated, Clock::time_point now) {
  if (choice_ == DeviceChoice::kUndecided && !continues_step(updated)) {
    end_step(now);
    step_ = Step{now};
  }
  if (choice_ == DeviceChoice::kUndecided) {
    step_->rows += rows;
    ++step_->forwards;
  }
  return mode();
}

DeviceChoice DeviceChooser::mode() const {
  if (choice_ != DeviceChoice::kUndecided) {
    return choice_;
  }
  const size_t i = seconds_.size();  // the running step is the next to be added
  const bool replicas =
      i < kPlanStart ? i < kWarmUpSteps : block_has_replicas((i - kPlanStart) / kBlockSteps);
  return replicas ? DeviceChoice::kReplicas : DeviceChoice::kOneDevice;
}

void DeviceChooser::set(DeviceChoice choice) {
  *this = DeviceChooser();
  choice_ = choice;
}

bool DeviceChooser::continues_step(bool updated) {
  if (updated || every_forward_is_a_step_ || !step_) {
    return false;
  }
  if (step_->forwards < kMaxForwards) {
    return true;
  }
  every_forward_is_a_step_ = true;
  measure_anew();
  return false;
}

void DeviceChooser::end_step(Clock::time_point now) {
  if (!step_ || !counts(step_->rows)) {
    return;
  }
  // A clock may be too coarse to see a step.
  constexpr double kNanosecond = 1e-9;
  const std::chrono::duration<double> seconds = now - step_->start;
  seconds_.push_back(std::max(seconds.count(), kNanosecond));
  look();
}

// Whether a step of so many rows follows the plan. If not it is repeated.
bool DeviceChooser::counts(int64_t rows) {
  if (any_rows_count_) {
    return true;
  }
  if (seconds_.size() < kPlanStart) {
    first_rows_.push_back(rows);
    usual_rows_ = majority(first_rows_);
    return true;
  }
  if (!usual_rows_ || rows == *usual_rows_) {
    unusual_in_a_row_ = 0;
    return true;
  }
  if (++unusual_in_a_row_ == kMaxUnusualInARow) {
    any_rows_count_ = true;
    measure_anew();
  }
  return false;
}

void DeviceChooser::measure_anew() {
  DeviceChooser fresh;
  fresh.any_rows_count_ = any_rows_count_;
  fresh.every_forward_is_a_step_ = every_forward_is_a_step_;
  *this = std::move(fresh);
}

void DeviceChooser::look() {
  if (seconds_.size() <= kPlanStart || (seconds_.size() - kPlanStart) % kLookSteps != 0) {
    return;
  }
  const size_t num_pairs = (seconds_.size() - kPlanStart) / kPairSteps;
  const auto ratios = sorted_ratios(seconds_.data() + kPlanStart, num_pairs);
  const size_t n = ratios.size();
  ratio_ = (ratios[(n - 1) / 2] + ratios[n / 2]) / 2;
  const double low = ratios[num_outside(n)];
  const double high = ratios[n - 1 - num_outside(n)];
  const double factor = num_pairs * kPairSteps == kLookSteps ? kFirstLookFactor : 1;
  if (high < kWinningRatio / factor) {
    choice_ = DeviceChoice::kReplicas;
  } else if (low > kWinningRatio * factor) {
    choice_ = DeviceChoice::kOneDevice;
  } else if (num_pairs == kMaxPairs) {
    choice_ = *ratio_ < kWinningRatio ? DeviceChoice::kReplicas : DeviceChoice::kOneDevice;
  }
}

}  // namespace lockstep::parallel::internal
