// SPDX-License-Identifier: Apache-2.0
#include "comm/all_gather.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/device_sets.h"
#include "testing/matchers.h"
#include "testing/summands.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::BitwiseEqual;
using ::lockstep::testing::DeviceSet;
using ::lockstep::testing::random_on_each;
using ::lockstep::testing::ThrowsError;

class AllGatherTest : public ::testing::TestWithParam<DeviceSet> {
 protected:
  int64_t count() const { return static_cast<int64_t>(GetParam().devices.size()); }
  std::vector<at::Tensor> inputs(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) const {
    return random_on_each(GetParam().devices, sizes, dtype);
  }
  static at::Tensor joined(const std::vector<at::Tensor>& inputs) {
    std::vector<at::Tensor> on_cpu;
    for (const at::Tensor& input : inputs) {
      on_cpu.push_back(input.cpu());
    }
    return at::cat(on_cpu);
  }
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS(AllGatherTest);

TEST_P(AllGatherTest, GivesEveryDeviceAllInputsInListOrder) {
  for (const at::ScalarType dtype :
       {at::kFloat, at::kHalf, at::kComplexDouble, at::kShort, at::kBool}) {
    const std::vector<at::Tensor> x = inputs({2, 3}, dtype);
    const std::vector<at::Tensor> wholes = all_gather(x, {GetParam().collectives});
    GetParam().sync();
    ASSERT_EQ(wholes.size(), x.size());
    for (size_t i = 0; i < wholes.size(); ++i) {
      EXPECT_EQ(wholes[i].device(), GetParam().devices[i]);
      EXPECT_THAT(wholes[i], BitwiseEqual(joined(x))) << dtype << " at " << i;
    }
  }
}

TEST_P(AllGatherTest, TakesInputsOfAnyStridesAndEmptyOnes) {
  std::vector<at::Tensor> x = inputs({3, 4});
  for (at::Tensor& input : x) {
    input = input.t().contiguous().t();
  }
  EXPECT_THAT(all_gather(x, {GetParam().collectives}).back(), BitwiseEqual(joined(x)));
  EXPECT_EQ(all_gather(inputs({0, 2}), {GetParam().collectives})[0].sizes(),
            at::IntArrayRef({0, 2}));
}

TEST_P(AllGatherTest, SendsEveryInputToAllOthers) {
  const std::vector<at::Tensor> x = inputs({6});
  GetParam().collectives->reset_counters();
  all_gather(x, {GetParam().collectives});
  GetParam().sync();
  EXPECT_EQ(GetParam().counters().calls, 1);
  EXPECT_EQ(GetParam().counters().messages, count() * (count() - 1));
  EXPECT_EQ(GetParam().counters().bytes, 24 * count() * (count() - 1));
}

TEST(AllGatherErrorTest, NamesWhatIsWrong) {
  const at::Tensor x = at::ones({3});
  EXPECT_THAT([&] { all_gather({}); }, ThrowsError("expected at least one input"));
  EXPECT_THAT([&] { all_gather({at::ones({})}); },
              ThrowsError("expected inputs with at least one dimension"));
  EXPECT_THAT(
      [&] {
        all_gather({x, at::ones({4})});
      },
      ThrowsError("expected size [3], got [4], at index 1"));
  EXPECT_THAT(
      [&] {
        all_gather({x, x.to(at::kInt)});
      },
      ThrowsError("expected dtype Float, got Int, at index 1"));
}

}  // namespace
}  // namespace lockstep::comm
