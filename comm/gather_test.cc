// SPDX-License-Identifier: Apache-2.0
#include "comm/gather.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/scatter.h"
#include "testing/device_sets.h"
#include "testing/matchers.h"
#include "testing/random.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::BitwiseEqual;
using ::lockstep::testing::DeviceSet;
using ::lockstep::testing::random_tensor;
using ::lockstep::testing::ThrowsError;

const c10::Device kCpu(c10::kCPU);

at::Tensor channels_last(const at::Tensor& tensor) {
  return tensor.contiguous(at::MemoryFormat::ChannelsLast);
}

class GatherTest : public ::testing::TestWithParam<DeviceSet> {
 protected:
  GatherOptions options() const { return {GetParam().collectives}; }
  static at::Tensor joined_on_host(std::vector<at::Tensor> inputs, int64_t dim) {
    for (at::Tensor& input : inputs) {
      input = input.cpu();
    }
    return at::cat(inputs, dim);
  }
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS(GatherTest);

TEST_P(GatherTest, JoinsInListOrderAlongAnyDim) {
  std::vector<at::Tensor> inputs;
  for (const c10::Device device : GetParam().devices) {
    inputs.push_back(random_tensor({2, 5}, inputs.size() + 1).to(device));
  }
  for (const int64_t dim : {0, 1, -1, -2}) {
    for (const c10::Device destination : {GetParam().devices[0], GetParam().devices.back(), kCpu}) {
      GetParam().collectives->reset_counters();
      const at::Tensor joined = gather(inputs, destination, dim, options());
      GetParam().sync();
      EXPECT_EQ(joined.device(), destination);
      EXPECT_THAT(joined, BitwiseEqual(joined_on_host(inputs, dim)));
      EXPECT_EQ(GetParam().counters().messages, static_cast<int64_t>(inputs.size()));
      EXPECT_EQ(GetParam().counters().bytes, static_cast<int64_t>(joined.nbytes()));
    }
  }
}

TEST_P(GatherTest, UndoesScatterAndKeepsChannelsLast) {
  const at::Tensor input =
      channels_last(random_tensor({10, 3, 32, 32}, 1)).to(GetParam().devices[0]);
  const std::vector<at::Tensor> pieces = scatter(input, GetParam().devices);
  const at::Tensor joined = gather(pieces, GetParam().devices[0], 0, options());
  GetParam().sync();
  EXPECT_THAT(joined, BitwiseEqual(input));
  EXPECT_EQ(joined.strides(), input.strides());
  EXPECT_NE(joined.data_ptr(), input.data_ptr());
}

TEST_P(GatherTest, ADestinationWithoutIndexIsTheCurrentDevice) {
  const c10::DeviceGuard current(GetParam().devices.back());
  const at::Tensor input = at::ones({2}, GetParam().devices[0]);
  const at::Tensor joined = gather({input, input}, c10::Device(current.current_device().type()));
  EXPECT_EQ(joined.device(), GetParam().devices.back());
  EXPECT_THAT(joined, BitwiseEqual(at::ones({4})));
}

TEST_P(GatherTest, ResultsNeedNoGradient) {
  const std::vector<at::Tensor> inputs(
      GetParam().devices.size(), at::ones({2}, at::device(GetParam().devices[0])).requires_grad_());
  EXPECT_FALSE(gather(inputs, GetParam().devices[0], 0, options()).requires_grad());
}

TEST_P(GatherTest, OutWritesTheGivenTensor) {
  std::vector<at::Tensor> inputs;
  for (const c10::Device device : GetParam().devices) {
    inputs.push_back(random_tensor({2, 3}, inputs.size() + 1).to(device));
  }
  const at::Tensor expected = joined_on_host(inputs, 1);
  const at::Tensor output = at::empty_like(expected, at::device(GetParam().devices.back()));
  EXPECT_TRUE(gather_out(inputs, output, 1, options()).is_same(output));
  GetParam().sync();
  EXPECT_THAT(output, BitwiseEqual(expected));
  EXPECT_GT(output._version(), 0);
}

TEST(GatherRulesTest, DisagreeingFormatsGiveAContiguousResult) {
  const at::Tensor plain = random_tensor({2, 3, 4, 4}, 1);
  const at::Tensor last = channels_last(random_tensor({2, 3, 4, 4}, 2));
  EXPECT_TRUE(gather({last, plain}, kCpu).is_contiguous());
  EXPECT_TRUE(gather({plain, last}, kCpu).is_contiguous());
  EXPECT_TRUE(gather({last, last}, kCpu).is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_THAT(gather({last, plain}, kCpu), BitwiseEqual(at::cat({last, plain})));
}

TEST(GatherRulesTest, InputsWithoutElementsHaveNoSayInTheFormat) {
  const at::Tensor last = channels_last(random_tensor({2, 3, 4, 4}, 2));
  EXPECT_TRUE(gather({at::empty({0, 3, 4, 4}, at::kDouble), last}, kCpu)
                  .is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(GatherRulesTest, ASingleInputGivesAFreshTensor) {
  const at::Tensor input = at::ones({2});
  const at::Tensor joined = gather(input, kCpu);
  EXPECT_NE(joined.data_ptr(), input.data_ptr());
  EXPECT_THAT(joined, BitwiseEqual(input));
}

TEST(GatherRulesTest, JoinsOntoADeviceThatHoldsNoInput) {
  const at::Tensor joined = gather({at::ones({2}), at::ones({3})}, c10::Device("meta"));
  EXPECT_TRUE(joined.is_meta());
  EXPECT_EQ(joined.size(0), 5);
}

TEST(GatherRulesTest, RejectsInputsThatDoNotFit) {
  EXPECT_THAT([] { gather({}, kCpu); },
              ThrowsError("[gather] expected at least one input, got an empty list"));
  EXPECT_THAT(
      [] {
        gather({at::ones({1}), at::ones({})}, kCpu);
      },
      ThrowsError("with at least one dimension, got a 0-d tensor, at index 1"));
  EXPECT_THAT(
      [] {
        gather({at::ones({4, 5}), at::ones({4, 3})}, kCpu);
      },
      ThrowsError("[gather] expected size [4, 5] outside the joined dim, got [4, 3], at "
                  "index 1, joining along dim 0"));
  EXPECT_THAT(
      [] {
        gather({at::ones({4, 5}), at::ones({4})}, kCpu, 1);
      },
      ThrowsError("[gather] expected 2 dimensions, as in size [4, 5], got size [4], at "
                  "index 1, joining along dim 1"));
  EXPECT_THAT(
      [] {
        gather({at::ones({4}), at::ones({4}, at::kInt)}, kCpu);
      },
      ThrowsError("expected dtype Float, got Int, at index 1"));
  EXPECT_THAT(
      [] {
        gather(at::ones({4, 5}), kCpu, 2);
      },
      ThrowsError("[gather] expected dim in the range [-2, 1], got 2"));
  EXPECT_THAT(
      [] {
        gather({at::ones({4}), at::Tensor()}, kCpu);
      },
      ThrowsError("expected a defined input, got an undefined tensor, at index 1"));
  EXPECT_THAT([] { gather(at::eye(2).to_sparse(), kCpu); }, ThrowsError("expected a dense input"));
  EXPECT_THAT([] { gather(at::ones({4}), c10::Device("cpu:1")); },
              ThrowsError("[gather] expected cpu or cpu:0, got cpu:1"));
}

TEST(GatherOutTest, RejectsOutputsThatDoNotFit) {
  const std::vector<at::Tensor> inputs = {at::ones({2, 5}), at::ones({2, 5})};
  EXPECT_THAT(
      [&] {
        gather_out(inputs, at::ones({4, 4}));
      },
      ThrowsError("[gather_out] expected an output of size [4, 5], got [4, 4]"));
  EXPECT_THAT(
      [&] {
        gather_out(inputs, at::ones({4, 5}, at::kInt));
      },
      ThrowsError("[gather_out] expected an output of dtype Float, got Int"));
  EXPECT_THAT(
      [&] {
        gather_out(inputs, at::ones({4, 5}).to_sparse());
      },
      ThrowsError("[gather_out] expected a dense output"));
  const at::Tensor buffer = at::zeros({6, 5});
  EXPECT_THAT(
      [&] {
        gather_out({buffer.narrow(0, 1, 2), inputs[0]}, buffer.narrow(0, 0, 4));
      },
      ThrowsError("expected an output apart from the input, got one that overlaps it"));
  EXPECT_THAT([&] { gather_out(inputs[0], inputs[0]); },
              ThrowsError("expected an output apart from the inputs, got the input, at index 0"));
}

}  // namespace
}  // namespace lockstep::comm
