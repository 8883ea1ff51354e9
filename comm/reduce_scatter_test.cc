// SPDX-License-Identifier: Apache-2.0
#include "comm/reduce_scatter.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/device_sets.h"
#include "testing/matchers.h"
#include "testing/summands.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::AllClose;
using ::lockstep::testing::BitwiseEqual;
using ::lockstep::testing::DeviceSet;
using ::lockstep::testing::random_on_each;
using ::lockstep::testing::successive_sum;
using ::lockstep::testing::ThrowsError;

class ReduceScatterTest : public ::testing::TestWithParam<DeviceSet> {
 protected:
  int64_t count() const { return static_cast<int64_t>(GetParam().devices.size()); }
  // Each [count * rows, 3].
  std::vector<at::Tensor> inputs(int64_t rows, at::ScalarType dtype = at::kFloat) const {
    return random_on_each(GetParam().devices, {count() * rows, 3}, dtype);
  }
  ReduceScatterOptions options(Reduction reduction = Reduction::kSum) const {
    return {reduction, GetParam().collectives};
  }
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS(ReduceScatterTest);

TEST_P(ReduceScatterTest, GivesEachDeviceItsPartOfTheSum) {
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kComplexDouble, at::kShort}) {
    const std::vector<at::Tensor> x = inputs(2, dtype);
    const std::vector<at::Tensor> expected = successive_sum(x).chunk(count());
    const std::vector<at::Tensor> parts = reduce_scatter(x, options());
    GetParam().sync();
    ASSERT_EQ(parts.size(), x.size());
    for (size_t i = 0; i < parts.size(); ++i) {
      EXPECT_EQ(parts[i].device(), GetParam().devices[i]);
      EXPECT_THAT(parts[i], BitwiseEqual(expected[i])) << dtype << " at " << i;
    }
  }
}

TEST_P(ReduceScatterTest, GivesPartsOfTheMean) {
  const std::vector<at::Tensor> x = inputs(4, at::kDouble);
  const std::vector<at::Tensor> expected = (successive_sum(x) / count()).chunk(count());
  const std::vector<at::Tensor> parts = reduce_scatter(x, options(Reduction::kMean));
  GetParam().sync();
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_THAT(parts[i], AllClose(expected[i], {1e-14, 1e-14}));
  }
}

TEST_P(ReduceScatterTest, TakesInputsOfAnyStridesAndLeavesThemAlone) {
  std::vector<at::Tensor> x = inputs(2);
  for (at::Tensor& input : x) {
    input = input.t().contiguous().t();
  }
  const at::Tensor before = x[0].clone();
  const at::Tensor expected = successive_sum(x).chunk(count()).back();
  EXPECT_THAT(reduce_scatter(x, options()).back(), BitwiseEqual(expected));
  EXPECT_THAT(x[0], BitwiseEqual(before));
}

TEST_P(ReduceScatterTest, SendsEveryPartFromAllButItsOwner) {
  const std::vector<at::Tensor> x = inputs(2);
  GetParam().collectives->reset_counters();
  reduce_scatter(x, options());
  GetParam().sync();
  EXPECT_EQ(GetParam().counters().calls, 1);
  EXPECT_EQ(GetParam().counters().messages, count() * (count() - 1));
  EXPECT_EQ(GetParam().counters().bytes, 24 * count() * (count() - 1));
}

TEST(ReduceScatterErrorTest, NamesWhatIsWrong) {
  const at::Tensor x = at::ones({3});
  EXPECT_THAT([&] { reduce_scatter({}); }, ThrowsError("expected at least one input"));
  EXPECT_THAT(
      [&] {
        reduce_scatter({x, x});
      },
      ThrowsError("expected a dim 0 that is a multiple of 2, the number of inputs, got "
                  "size [3]"));
  EXPECT_THAT([&] { reduce_scatter({at::ones({})}); }, ThrowsError("expected a dim 0"));
  EXPECT_THAT(
      [&] {
        reduce_scatter({x, at::ones({4})});
      },
      ThrowsError("expected size [3], got [4], at index 1"));
  ReduceScatterOptions mean;
  mean.reduction = Reduction::kMean;
  EXPECT_THAT([&] { reduce_scatter({x.to(at::kBool)}, mean); },
              ThrowsError("dtype for a mean, got Bool"));
}

}  // namespace
}  // namespace lockstep::comm
