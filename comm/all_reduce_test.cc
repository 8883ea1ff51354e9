// SPDX-License-Identifier: Apache-2.0
#include "comm/all_reduce.h"

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

class AllReduceTest : public ::testing::TestWithParam<DeviceSet> {
 protected:
  std::vector<at::Tensor> inputs(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) const {
    return random_on_each(GetParam().devices, sizes, dtype);
  }
  AllReduceOptions options(Reduction reduction = Reduction::kSum) const {
    return {reduction, GetParam().collectives};
  }
  int64_t count() const { return static_cast<int64_t>(GetParam().devices.size()); }
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS(AllReduceTest);

TEST_P(AllReduceTest, GivesEveryDeviceTheSumInListOrder) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16,
                                     at::kComplexFloat, at::kLong, at::kShort, at::kBool}) {
    const std::vector<at::Tensor> x = inputs({3, 5}, dtype);
    const at::Tensor expected = successive_sum(x);
    const std::vector<at::Tensor> sums = all_reduce(x, options());
    GetParam().sync();
    ASSERT_EQ(sums.size(), x.size());
    for (size_t i = 0; i < sums.size(); ++i) {
      EXPECT_EQ(sums[i].device(), GetParam().devices[i]);
      EXPECT_THAT(sums[i], BitwiseEqual(expected)) << dtype << " at " << i;
      EXPECT_FALSE(sums[i].is_alias_of(x[i]));
    }
  }
}

TEST_P(AllReduceTest, LeavesInputsAloneAndKeepsTheirMemoryFormat) {
  std::vector<at::Tensor> x = inputs({2, 3, 4, 4});
  for (at::Tensor& input : x) {
    input = input.contiguous(at::MemoryFormat::ChannelsLast);
  }
  const at::Tensor before = x.back().clone();
  const std::vector<at::Tensor> sums = all_reduce(x, options());
  GetParam().sync();
  EXPECT_TRUE(sums.back().is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_THAT(sums.back(), BitwiseEqual(successive_sum(x)));
  EXPECT_THAT(x.back(), BitwiseEqual(before));
  EXPECT_EQ(x.back()._version(), 0);
}

TEST_P(AllReduceTest, MeansDivideTheSumByTheNumberOfInputs) {
  const std::vector<at::Tensor> x = inputs({40}, at::kDouble);
  const std::vector<at::Tensor> means = all_reduce(x, options(Reduction::kMean));
  GetParam().sync();
  for (const at::Tensor& mean : means) {
    EXPECT_THAT(mean, AllClose(successive_sum(x) / count(), {1e-14, 1e-14}));
  }
}

TEST_P(AllReduceTest, WorksInPlaceAndRaisesVersions) {
  const std::vector<at::Tensor> x = inputs({7});
  const at::Tensor expected = successive_sum(x);
  const std::vector<at::Tensor> sums = all_reduce_out(x, x, options());
  GetParam().sync();
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_TRUE(sums[i].is_same(x[i]));
    EXPECT_THAT(x[i], BitwiseEqual(expected));
    EXPECT_GT(x[i]._version(), 0);
  }
}

TEST_P(AllReduceTest, TakesOutputsOfAnyStrides) {
  const std::vector<at::Tensor> x = inputs({3, 4});
  std::vector<at::Tensor> out;
  for (const at::Tensor& input : x) {
    out.push_back(at::zeros({4, 6}, input.options()).t().slice(0, 0, 6, 2));
  }
  all_reduce_out(x, out, options());
  GetParam().sync();
  for (const at::Tensor& output : out) {
    EXPECT_THAT(output, BitwiseEqual(successive_sum(x)));
  }
}

TEST_P(AllReduceTest, TakesEmptyAndZeroDimensionalTensors) {
  EXPECT_EQ(all_reduce(inputs({0, 2}), options())[0].sizes(), at::IntArrayRef({0, 2}));
  const std::vector<at::Tensor> scalars = inputs({});
  EXPECT_THAT(all_reduce(scalars, options())[0], BitwiseEqual(successive_sum(scalars)));
}

TEST_P(AllReduceTest, SendsTwiceWhatAllButOneHold) {
  const std::vector<at::Tensor> x = inputs({6});
  GetParam().collectives->reset_counters();
  all_reduce(x, options());
  GetParam().sync();
  EXPECT_EQ(GetParam().counters().calls, 1);
  EXPECT_EQ(GetParam().counters().messages, 2 * (count() - 1));
  EXPECT_EQ(GetParam().counters().bytes, 24 * 2 * (count() - 1));
}

TEST_P(AllReduceTest, RecordsNoGradientHistory) {
  std::vector<at::Tensor> x = inputs({2});
  for (at::Tensor& input : x) {
    input.requires_grad_();
  }
  for (const at::Tensor& sum : all_reduce(x, options())) {
    EXPECT_FALSE(sum.requires_grad());
  }
}

TEST(AllReduceErrorTest, NamesWhatIsWrongWithTheInputs) {
  const at::Tensor x = at::ones({2});
  EXPECT_THAT([&] { all_reduce({}); }, ThrowsError("expected at least one input"));
  EXPECT_THAT(
      [&] {
        all_reduce({x, at::Tensor()});
      },
      ThrowsError("expected a defined input, got an undefined tensor, at index 1"));
  EXPECT_THAT(
      [&] {
        all_reduce({x, at::ones({3})});
      },
      ThrowsError("expected size [2], got [3], at index 1"));
  EXPECT_THAT(
      [&] {
        all_reduce({x, x.to(at::kDouble)});
      },
      ThrowsError("expected dtype Float, got Double, at index 1"));
  EXPECT_THAT(
      [&] {
        all_reduce({x.to_sparse(), x.to_sparse()});
      },
      ThrowsError("expected a dense input"));
  AllReduceOptions mean;
  mean.reduction = Reduction::kMean;
  EXPECT_THAT([&] { all_reduce({x.to(at::kInt)}, mean); },
              ThrowsError("expected a floating-point or complex dtype for a mean, got Int"));
}

TEST(AllReduceErrorTest, NamesWhatIsWrongWithTheOutputsAndWritesNothing) {
  const std::vector<at::Tensor> x = {at::ones({2}), at::ones({2})};
  const at::Tensor out = at::zeros({2});
  const auto run = [&](const at::Tensor& second) {
    return [&x, &out, second] { all_reduce_out(x, {out, second}); };
  };
  EXPECT_THAT([&] { all_reduce_out(x, {out}); },
              ThrowsError("expected 2 outputs, one per input, got 1"));
  EXPECT_THAT(run(at::Tensor()), ThrowsError("expected a defined output"));
  EXPECT_THAT(run(at::zeros({3})), ThrowsError("an output of size [2], got [3], at index 1"));
  EXPECT_THAT(run(at::zeros({2}, at::kInt)),
              ThrowsError("an output of dtype Float, got Int, at index 1"));
  EXPECT_THAT(run(at::empty({2}, at::device(at::kMeta))),
              ThrowsError("an output on cpu, got meta, at index 1"));
  EXPECT_THAT(run(out), ThrowsError("outputs apart from each other, got output 0, at index 1"));
  EXPECT_THAT(run(x[0]), ThrowsError("apart from the inputs of other positions, got input 0"));
  EXPECT_THAT(run(at::zeros({1}).expand({2})), ThrowsError("elements have memory of their own"));
  EXPECT_THAT(out, BitwiseEqual(at::zeros({2})));
}

}  // namespace
}  // namespace lockstep::comm
