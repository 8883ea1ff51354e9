// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/statistics.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace lockstep::benchmarks {
namespace {

TEST(StatisticsTest, MedianIsTheMiddleValue) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median({7}), 7);
}

TEST(StatisticsTest, NothingHasNoMedian) {
  EXPECT_THROW(median({}), std::invalid_argument);
  EXPECT_THROW(estimate_median({}), std::invalid_argument);
  EXPECT_THROW(geometric_mean({}), std::invalid_argument);
}

TEST(StatisticsTest, EqualRatiosGiveAnIntervalWithoutWidth) {
  const RatioEstimate e = estimate_median(std::vector<double>(30, 1.5));
  EXPECT_EQ(e.median, 1.5);
  EXPECT_EQ(e.low, 1.5);
  EXPECT_EQ(e.high, 1.5);
  EXPECT_EQ(e.resampled.size(), kResamples);
}

TEST(StatisticsTest, TheIntervalHoldsTheMedianAndStaysWithinTheData) {
  std::vector<double> ratios;
  for (int i = 0; i < 31; ++i) ratios.push_back(1 + 0.1 * i);
  const RatioEstimate e = estimate_median(ratios);
  EXPECT_DOUBLE_EQ(e.median, 2.5);
  EXPECT_LT(e.low, e.median);
  EXPECT_GT(e.high, e.median);
  // Order statistics 10 and 22 of 31 bound the median with 95 % confidence.
  EXPECT_NEAR(e.low, 1.9, 0.3);
  EXPECT_NEAR(e.high, 3.1, 0.3);
}

TEST(StatisticsTest, OneOutlierDoesNotMoveTheEstimate) {
  std::vector<double> ratios(30, 2.0);
  ratios[4] = 1000;
  const RatioEstimate e = estimate_median(ratios);
  EXPECT_EQ(e.median, 2.0);
  EXPECT_EQ(e.high, 2.0);
}

TEST(StatisticsTest, TheSameRatiosGiveTheSameEstimate) {
  const std::vector<double> ratios{1.2, 1.9, 1.4, 1.1, 1.6};
  EXPECT_EQ(estimate_median(ratios).resampled, estimate_median(ratios).resampled);
}

TEST(StatisticsTest, GeometricMeanMultipliesMedians) {
  const RatioEstimate two = estimate_median({2, 2, 2});
  const RatioEstimate eight = estimate_median({8, 8, 8});
  const RatioEstimate mean = geometric_mean({two, eight});
  EXPECT_NEAR(mean.median, 4, 1e-12);
  EXPECT_NEAR(mean.low, 4, 1e-12);
  EXPECT_NEAR(mean.high, 4, 1e-12);
}

TEST(StatisticsTest, GeometricMeanOfManyCasesIsNarrowerThanEachOfThem) {
  std::vector<RatioEstimate> cases;
  for (int c = 0; c < 9; ++c) {
    std::vector<double> ratios;
    for (int i = 0; i < 31; ++i) ratios.push_back(1 + 0.1 * ((i * 7 + c) % 31) + 0.001 * c);
    cases.push_back(estimate_median(ratios));
  }
  const RatioEstimate mean = geometric_mean(cases);
  EXPECT_LT(mean.high - mean.low, 0.7 * (cases[0].high - cases[0].low));
}

}  // namespace
}  // namespace lockstep::benchmarks
