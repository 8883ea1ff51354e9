// SPDX-License-Identifier: Apache-2.0
// statistics: the estimates that the benchmarks print: medians of per-pair ratios with an interval.
// Use it on samples that paired.h has taken. It knows nothing of clocks or of what was measured.
//   RatioEstimate e = estimate_median({2.0, 2.1, 1.9});   // e.median, e.low, e.high
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep::benchmarks {

// The resampled medians behind an interval; estimates of several cases are combined through them.
constexpr size_t kResamples = 2000;

struct RatioEstimate {
  double median = 0;
  double low = 0;  // ends of the 95 % bootstrap interval of the median
  double high = 0;
  std::vector<double> resampled;  // kResamples medians
};

// The middle value; the mean of the two middle ones for an even count.
// Throws: std::invalid_argument if `values` is empty.
double median(std::vector<double> values);

// The median of `ratios` with a 95 % percentile bootstrap interval. The same ratios give the same
// estimate: the resampling is seeded.
// Throws: std::invalid_argument if `ratios` is empty.
RatioEstimate estimate_median(const std::vector<double>& ratios);

// The geometric mean of independent estimates, with the interval that their resamples give.
// Throws: std::invalid_argument if `estimates` is empty.
RatioEstimate geometric_mean(const std::vector<RatioEstimate>& estimates);

}  // namespace lockstep::benchmarks
