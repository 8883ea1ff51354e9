// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/check.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/randint.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>
#include <sstream>
#include <stdexcept>

namespace fashion_mnist {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Dataset noise(int64_t count) {
  torch::manual_seed(7);
  return {at::randint(256, {count, 28, 28}, at::kByte), at::arange(count, at::kByte).remainder(10)};
}

CheckOptions options(int64_t num_devices, int64_t batch_size) {
  CheckOptions result;
  result.devices.assign(num_devices, c10::Device(at::kCPU));
  result.batch_size = batch_size;
  result.seed = 3;
  result.lr = 0.05;
  return result;
}

TEST(LargestGradientDifferenceTest, IsZeroForTheChunkedReference) {
  for (const int64_t num_devices : {2, 3}) {
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      const GradientCase which{dtype, Reference::kChunked};
      EXPECT_EQ(largest_gradient_difference(noise(40), options(num_devices, 13), which).whole, 0)
          << num_devices << " devices, " << dtype;
    }
  }
}

TEST(LargestGradientDifferenceTest, IsRoundingForTheFullBatch) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const GradientCase which{dtype, Reference::kFullBatch};
    EXPECT_LE(largest_gradient_difference(noise(40), options(2, 13), which).whole,
              allowed_difference(which))
        << dtype;
  }
}

TEST(LargestGradientDifferenceTest, GrowsWithWhatIsWrongInOneReplica) {
  const auto difference = [](double offset) {
    return largest_gradient_difference(noise(40), options(2, 13),
                                       {at::kDouble, Reference::kFullBatch, offset})
        .whole;
  };
  EXPECT_GT(difference(1e-6), 1e-12);
  EXPECT_GT(difference(1e-3), difference(1e-6));
}

TEST(LargestGradientDifferenceTest, DoesNotLoseANan) {
  const GradientCase broken{at::kDouble, Reference::kFullBatch,
                            std::numeric_limits<double>::quiet_NaN()};
  EXPECT_TRUE(std::isnan(largest_gradient_difference(noise(40), options(2, 13), broken).whole));
}

TEST(CheckGradientsTest, PassesAndReportsThePerturbedReplica) {
  std::ostringstream out;
  EXPECT_TRUE(check_gradients(noise(40), options(2, 16), out));
  EXPECT_THAT(out.str(), HasSubstr("float32, chunked     largest gradient difference 0 "));
  EXPECT_THAT(out.str(), HasSubstr("float64, chunked     largest gradient difference 0 "));
  EXPECT_THAT(out.str(), HasSubstr("perturbed replica detected: difference "));
  EXPECT_THAT(out.str(), HasSubstr("check passed: 3 steps of 16 samples on 2 replicas"));
  EXPECT_THAT(out.str(), Not(HasSubstr("WRONG")));
}

TEST(CheckGradientsTest, RejectsTooFewDevicesOrSamples) {
  std::ostringstream out;
  EXPECT_THROW(check_gradients(noise(40), options(1, 16), out), std::runtime_error);
  EXPECT_THROW(check_gradients(noise(40), options(3, 2), out), std::runtime_error);
}

}  // namespace
}  // namespace fashion_mnist
