// SPDX-License-Identifier: Apache-2.0
#include "comm/broadcast.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/copy_collectives.h"
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
const c10::Device kMeta(c10::kMeta);  // a second device that holds no data

class BroadcastTest : public ::testing::TestWithParam<DeviceSet> {
 protected:
  BroadcastOptions options() const {
    GetParam().collectives->reset_counters();
    return {GetParam().collectives};
  }
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS(BroadcastTest);

TEST_P(BroadcastTest, FirstEntryOnTheSourcesDeviceIsTheSourceAndTheOthersAreFresh) {
  const std::vector<c10::Device>& devices = GetParam().devices;
  const at::Tensor source = random_tensor({5, 5}, 1, at::kFloat).to(devices[0]).requires_grad_();
  const std::vector<at::Tensor> outputs = broadcast(source, devices, options());
  GetParam().sync();
  ASSERT_EQ(outputs.size(), devices.size());
  EXPECT_TRUE(outputs[0].is_same(source));
  for (size_t i = 1; i < outputs.size(); ++i) {
    EXPECT_THAT(outputs[i], BitwiseEqual(source));
    EXPECT_EQ(outputs[i].device(), devices[i]);
    EXPECT_NE(outputs[i].data_ptr(), source.data_ptr());
    EXPECT_FALSE(outputs[i].requires_grad());
  }
  const int64_t fresh = static_cast<int64_t>(devices.size()) - 1;
  EXPECT_EQ(GetParam().counters().messages, fresh);
  EXPECT_EQ(GetParam().counters().bytes, 100 * fresh);
}

TEST_P(BroadcastTest, TakesASourceOnTheHost) {
  const at::Tensor source = random_tensor({5, 5}, 1);
  const std::vector<at::Tensor> outputs = broadcast(source, GetParam().devices, options());
  std::vector<at::Tensor> given;
  for (const at::Tensor& output : outputs) {
    given.push_back(at::zeros_like(output));
  }
  broadcast_out(source, given, options());
  GetParam().sync();
  for (size_t i = 0; i < outputs.size(); ++i) {
    EXPECT_EQ(outputs[i].device(), GetParam().devices[i]);
    EXPECT_THAT(outputs[i], BitwiseEqual(source));
    EXPECT_THAT(given[i], BitwiseEqual(source));
  }
}

TEST_P(BroadcastTest, KeepsTheMemoryFormat) {
  const std::vector<c10::Device>& devices = GetParam().devices;
  const at::Tensor source =
      random_tensor({2, 3, 4, 5}, 1).to(devices[0]).contiguous(at::MemoryFormat::ChannelsLast);
  for (const at::Tensor& output : broadcast(source, devices, options())) {
    EXPECT_EQ(output.strides(), source.strides());
    EXPECT_THAT(output, BitwiseEqual(source));
  }
}

TEST_P(BroadcastTest, SparseTensorsStaySparse) {
  const std::vector<c10::Device>& devices = GetParam().devices;
  const at::Tensor source = random_tensor({3, 4}, 1).to(devices[0]).to_sparse();
  const std::vector<at::Tensor> outputs = broadcast(source, devices, options());
  for (const at::Tensor& output : outputs) {
    EXPECT_TRUE(output.is_sparse());
    EXPECT_TRUE(output.is_coalesced());
    EXPECT_THAT(output.to_dense(), BitwiseEqual(source.to_dense()));
  }
  EXPECT_TRUE(outputs[0].is_same(source));
}

TEST_P(BroadcastTest, OutWritesTheGivenTensorsAndReturnsThem) {
  const std::vector<c10::Device>& devices = GetParam().devices;
  const at::Tensor source = random_tensor({5, 5}, 1).to(devices[0]);
  std::vector<at::Tensor> given;
  for (const c10::Device device : devices) {
    given.push_back(at::empty({5, 5}, source.options().device(device)));
  }
  const auto source_version = source._version();
  const std::vector<at::Tensor> outputs = broadcast_out(source, given, options());
  GetParam().sync();
  ASSERT_EQ(outputs.size(), given.size());
  for (size_t i = 0; i < given.size(); ++i) {
    EXPECT_TRUE(outputs[i].is_same(given[i]));
    EXPECT_THAT(given[i], BitwiseEqual(source));
    EXPECT_EQ(given[i]._version(), 1);
  }
  EXPECT_EQ(source._version(), source_version);
  EXPECT_EQ(GetParam().counters().messages, static_cast<int64_t>(devices.size()));
}

TEST(BroadcastRulesTest, OnlyOneEntryIsTheSourceWhereverItStands) {
  const at::Tensor source = at::ones({2});
  const std::vector<at::Tensor> outputs = broadcast(source, {kMeta, kCpu, kCpu});
  EXPECT_TRUE(outputs[0].is_meta());
  EXPECT_TRUE(outputs[1].is_same(source));
  EXPECT_FALSE(outputs[2].is_same(source));
}

TEST_P(BroadcastTest, EveryDtypeTravels) {
  const std::vector<c10::Device>& devices = GetParam().devices;
  for (const at::ScalarType dtype :
       {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kBFloat16, at::kFloat,
        at::kDouble, at::kBool, at::kComplexFloat, at::kComplexDouble}) {
    const at::Tensor source = random_tensor({7}, 1, dtype);
    const std::vector<at::Tensor> outputs = broadcast(source.to(devices[0]), devices, options());
    EXPECT_THAT(outputs.back(), BitwiseEqual(source)) << dtype;
  }
}

TEST_P(BroadcastTest, TakesConjugatedAndExpandedTensors) {
  const std::vector<c10::Device>& devices = GetParam().devices;
  const at::Tensor conjugated = random_tensor({3}, 1, at::kComplexDouble).to(devices[0]).conj();
  const at::Tensor expanded = at::ones({1, 3}, devices[0]).expand({4, 3});
  const std::vector<at::Tensor> copies = broadcast(expanded, devices, options());
  for (size_t i = 1; i < devices.size(); ++i) {
    EXPECT_THAT(broadcast(conjugated, devices, options())[i],
                BitwiseEqual(conjugated.resolve_conj()));
    EXPECT_THAT(copies[i], BitwiseEqual(expanded));
    EXPECT_TRUE(copies[i].is_non_overlapping_and_dense());
  }
}

TEST(BroadcastRulesTest, RejectsWrongArguments) {
  EXPECT_THAT([] { broadcast(at::ones({2}), {}); },
              ThrowsError("[broadcast] expected at least one device, got an empty list"));
  EXPECT_THAT(
      [] {
        broadcast(at::ones({2}), {kCpu, c10::Device("cpu:1")});
      },
      ThrowsError("[broadcast] expected cpu or cpu:0, got cpu:1, at position 1"));
  EXPECT_THAT([] { broadcast(at::Tensor(), {kCpu}); },
              ThrowsError("[broadcast] expected a defined tensor"));
  EXPECT_THAT([] { broadcast(at::eye(2).to_sparse_csr(), {kCpu}); },
              ThrowsError("[broadcast] expected a dense or sparse COO tensor"));
}

TEST(BroadcastOutTest, LeavesTheSourceItselfAlone) {
  CopyCollectives engine;
  const at::Tensor source = at::ones({2});
  const auto version = source._version();
  broadcast_out(source, {source, source.view({2})}, {&engine});
  EXPECT_EQ(source._version(), version);
  EXPECT_EQ(engine.counters().calls, 0);
}

TEST(BroadcastOutTest, WritesATrainableLeafWithoutRecording) {
  const at::Tensor leaf = at::zeros({2}).requires_grad_();
  broadcast_out(at::ones({2}).requires_grad_(), leaf);
  EXPECT_TRUE(leaf.is_leaf());
  EXPECT_THAT(leaf, BitwiseEqual(at::ones({2})));
}

TEST(BroadcastOutTest, RejectsOutputsThatDoNotFitBeforeWriting) {
  const at::Tensor source = at::ones({2, 3});
  const at::Tensor good = at::zeros({2, 3});
  const auto call = [&](const at::Tensor& bad) { broadcast_out(source, {good, bad}); };
  EXPECT_THAT([&] { broadcast_out(source, {}); },
              ThrowsError("[broadcast_out] expected at least one output"));
  EXPECT_THAT(
      [&] {
        call(at::zeros({3, 2}));
      },
      ThrowsError("expected an output of size [2, 3], got [3, 2], at index 1"));
  EXPECT_THAT(
      [&] {
        call(at::zeros({2, 3}, at::kDouble));
      },
      ThrowsError("expected an output of dtype Float, got Double, at index 1"));
  EXPECT_THAT([&] { call(at::Tensor()); }, ThrowsError("expected a defined output"));
  EXPECT_THAT(
      [&] {
        call(at::zeros({2, 3}).to_sparse());
      },
      ThrowsError("expected a dense output, got SparseCPUFloatType, at index 1"));
  EXPECT_THAT(
      [&] {
        call(at::zeros({1, 3}).expand({2, 3}));
      },
      ThrowsError("expected an output whose elements have memory of their own"));
  EXPECT_THAT(good, BitwiseEqual(at::zeros({2, 3})));
  const at::Tensor buffer = at::zeros({9});
  const at::Tensor front = buffer.narrow(0, 0, 6);
  EXPECT_THAT([&] { broadcast_out(front, {buffer.narrow(0, 3, 6)}); },
              ThrowsError("expected an output apart from the input, got one that overlaps it"));
}

}  // namespace
}  // namespace lockstep::comm
