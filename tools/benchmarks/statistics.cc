// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <utility>

namespace lockstep::benchmarks {
namespace {

constexpr uint64_t kSeed = 20190611;

void require(bool condition, const char* message) {
  if (!condition) throw std::invalid_argument(message);
}

// The value below which `share` of the sorted `values` lie.
double quantile(const std::vector<double>& sorted, double share) {
  const double position = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double weight = position - static_cast<double>(below);
  return sorted[below] * (1 - weight) + sorted[above] * weight;
}

void set_interval(RatioEstimate& estimate) {
  std::vector<double> sorted = estimate.resampled;
  std::sort(sorted.begin(), sorted.end());
  estimate.low = quantile(sorted, 0.025);
  estimate.high = quantile(sorted, 0.975);
}

}  // namespace

double median(std::vector<double> values) {
  require(!values.empty(), "[median] expected at least one value, got none");
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + middle, values.end());
  const double upper = values[middle];
  if (values.size() % 2 == 1) return upper;
  return (upper + *std::max_element(values.begin(), values.begin() + middle)) / 2;
}

RatioEstimate estimate_median(const std::vector<double>& ratios) {
  require(!ratios.empty(), "[estimate_median] expected at least one ratio, got none");
  RatioEstimate estimate;
  estimate.median = median(ratios);
  std::mt19937_64 random(kSeed);
  std::uniform_int_distribution<size_t> any(0, ratios.size() - 1);
  estimate.resampled.reserve(kResamples);
  std::vector<double> drawn(ratios.size());
  for (size_t i = 0; i < kResamples; ++i) {
    for (double& value : drawn) value = ratios[any(random)];
    estimate.resampled.push_back(median(drawn));
  }
  // Every estimate draws from the same seed: without a shuffle the n-th resamples of two cases
  // would be one pattern, not two independent ones.
  std::mt19937_64 order(kSeed ^ static_cast<uint64_t>(std::llround(estimate.median * 1e9)));
  std::shuffle(estimate.resampled.begin(), estimate.resampled.end(), order);
  set_interval(estimate);
  return estimate;
}

RatioEstimate geometric_mean(const std::vector<RatioEstimate>& estimates) {
  require(!estimates.empty(), "[geometric_mean] expected at least one estimate, got none");
  const auto count = static_cast<double>(estimates.size());
  double log_sum = 0;
  std::vector<double> logs(kResamples, 0.0);
  for (const RatioEstimate& estimate : estimates) {
    log_sum += std::log(estimate.median);
    for (size_t i = 0; i < kResamples; ++i) logs[i] += std::log(estimate.resampled.at(i));
  }
  RatioEstimate mean;
  mean.median = std::exp(log_sum / count);
  for (const double log : logs) mean.resampled.push_back(std::exp(log / count));
  set_interval(mean);
  return mean;
}

}  // namespace lockstep::benchmarks
