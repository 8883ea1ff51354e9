// SPDX-License-Identifier: Apache-2.0
#include "comm/scatter.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "testing/device_sets.h"
#include "testing/matchers.h"
#include "testing/random.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::BitwiseEqual;
using ::lockstep::testing::DeviceSet;
using ::lockstep::testing::random_tensor;
using ::lockstep::testing::ThrowsError;
using ::testing::ElementsAre;

const c10::Device kCpu(c10::kCPU);
const c10::Device kMeta(c10::kMeta);  // a second device that holds no data

ScatterOptions along(int64_t dim) {
  ScatterOptions options;
  options.dim = dim;
  return options;
}

ScatterOptions sized(std::vector<int64_t> sizes, int64_t dim = 0) {
  ScatterOptions options;
  options.chunk_sizes = std::move(sizes);
  options.dim = dim;
  return options;
}

TEST(ChunkSizesTest, FollowTheChunkRule) {
  EXPECT_THAT(chunk_sizes(1, 4), ElementsAre(1));
  EXPECT_THAT(chunk_sizes(2, 4), ElementsAre(1, 1));
  EXPECT_THAT(chunk_sizes(3, 4), ElementsAre(1, 1, 1));
  EXPECT_THAT(chunk_sizes(5, 4), ElementsAre(2, 2, 1));
  EXPECT_THAT(chunk_sizes(6, 4), ElementsAre(2, 2, 2));
  EXPECT_THAT(chunk_sizes(7, 4), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(chunk_sizes(9, 4), ElementsAre(3, 3, 3));
  EXPECT_THAT(chunk_sizes(10, 4), ElementsAre(3, 3, 3, 1));
  EXPECT_THAT(chunk_sizes(0, 4), ElementsAre(0, 0, 0, 0));
}

TEST(ChunkSizesTest, AgreeWithLibTorchsChunk) {
  for (int64_t n = 0; n < 20; ++n) {
    for (int64_t parts = 1; parts < 7; ++parts) {
      std::vector<int64_t> expected;
      for (const at::Tensor& chunk : at::ones({n}).chunk(parts)) {
        expected.push_back(chunk.size(0));
      }
      EXPECT_EQ(chunk_sizes(n, parts), expected) << n << " over " << parts;
    }
  }
}

TEST(EvenSizesTest, DifferByAtMostOneLargerFirst) {
  EXPECT_THAT(even_sizes(7, 3), ElementsAre(3, 2, 2));
  EXPECT_THAT(even_sizes(5, 4), ElementsAre(2, 1, 1, 1));
  EXPECT_THAT(even_sizes(8, 4), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(even_sizes(2, 4), ElementsAre(1, 1));
  EXPECT_THAT(even_sizes(0, 4), ElementsAre(0));
  EXPECT_THAT(even_sizes(5, 1), ElementsAre(5));
}

TEST(ChunkSizesTest, RejectsNegativeRowsAndNoParts) {
  EXPECT_THAT([] { chunk_sizes(-1, 2); }, ThrowsError("[chunk_sizes] expected n of at least 0"));
  EXPECT_THAT([] { chunk_sizes(1, 0); }, ThrowsError("[chunk_sizes] expected at least one part"));
  EXPECT_THAT([] { even_sizes(-1, 2); }, ThrowsError("[even_sizes] expected n of at least 0"));
  EXPECT_THAT([] { even_sizes(1, 0); }, ThrowsError("[even_sizes] expected at least one part"));
}

class ScatterTest : public ::testing::TestWithParam<DeviceSet> {
 protected:
  void expect_slices(const at::Tensor& input, const std::vector<int64_t>& sizes, int64_t dim,
                     const ScatterOptions& options) const {
    for (const c10::Device source : {kCpu, GetParam().devices[0], GetParam().devices.back()}) {
      const std::vector<at::Tensor> pieces = scatter(input.to(source), GetParam().devices, options);
      GetParam().sync();
      ASSERT_EQ(pieces.size(), sizes.size());
      int64_t start = 0;
      for (size_t i = 0; i < pieces.size(); ++i) {
        EXPECT_THAT(pieces[i], BitwiseEqual(input.narrow(dim, start, sizes[i])));
        EXPECT_EQ(pieces[i].device(), GetParam().devices[i]);
        start += sizes[i];
      }
    }
  }
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS(ScatterTest);

TEST_P(ScatterTest, GivesExactSlicesAlongAnyDim) {
  const int64_t k = static_cast<int64_t>(GetParam().devices.size());
  const at::Tensor input = random_tensor({4, 4}, 1);
  for (const int64_t dim : {0, 1, -1, -2}) {
    expect_slices(input, chunk_sizes(4, k), dim, along(dim));
  }
}

TEST_P(ScatterTest, FollowsGivenSizes) {
  const int64_t k = static_cast<int64_t>(GetParam().devices.size());
  std::vector<int64_t> sizes(static_cast<size_t>(k));
  std::iota(sizes.begin(), sizes.end(), 0);
  const int64_t rows = k * (k - 1) / 2;
  expect_slices(random_tensor({rows, 4}, 1), sizes, 0, sized(sizes));
  expect_slices(random_tensor({4, rows}, 1), sizes, -1, sized(sizes, -1));
}

TEST_P(ScatterTest, AnEmptyBatchGivesAnEmptyPiecePerDevice) {
  const int64_t k = static_cast<int64_t>(GetParam().devices.size());
  expect_slices(at::empty({0, 3}), std::vector<int64_t>(static_cast<size_t>(k), 0), 0, {});
}

TEST_P(ScatterTest, OnlyPiecesOnTheInputsDeviceShareItsMemory) {
  const at::Tensor input = at::zeros({12, 2}, GetParam().devices.back());
  for (const at::Tensor& piece : scatter(input, GetParam().devices)) {
    EXPECT_EQ(piece.is_alias_of(input), piece.device() == input.device());
    piece.fill_(1);
  }
  const std::vector<c10::Device>& devices = GetParam().devices;
  const auto entries = std::count(devices.begin(), devices.end(), devices.back());
  const int64_t shared = 12 / static_cast<int64_t>(devices.size()) * entries;
  EXPECT_EQ(input.sum().item<int64_t>(), 2 * shared);
}

TEST_P(ScatterTest, PiecesAreChannelsLastWhereTheInputIs) {
  const at::Tensor input =
      random_tensor({12, 3, 8, 8}, 1).contiguous(at::MemoryFormat::ChannelsLast);
  for (const at::Tensor& piece : scatter(input, GetParam().devices)) {
    EXPECT_TRUE(piece.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_FALSE(piece.is_contiguous());
  }
}

TEST_P(ScatterTest, OutFollowsTheSizesOfTheOutputs) {
  const size_t k = GetParam().devices.size();
  std::vector<at::Tensor> outputs;
  int64_t rows = 0;
  for (size_t i = 0; i < k; ++i) {
    const int64_t n = static_cast<int64_t>(2 * i + 1);
    outputs.push_back(at::empty({4, n}, at::device(GetParam().devices[i]).dtype(at::kDouble)));
    rows += n;
  }
  const at::Tensor input = random_tensor({4, rows}, 1);
  ScatterOptions options = along(-1);
  options.collectives = GetParam().collectives;
  GetParam().collectives->reset_counters();
  const std::vector<at::Tensor> returned = scatter_out(input, outputs, options);
  GetParam().sync();
  EXPECT_EQ(GetParam().counters().messages, static_cast<int64_t>(k));
  EXPECT_EQ(GetParam().counters().bytes, static_cast<int64_t>(input.nbytes()));
  int64_t start = 0;
  for (size_t i = 0; i < k; ++i) {
    EXPECT_THAT(outputs[i], BitwiseEqual(input.narrow(1, start, outputs[i].size(1))));
    start += outputs[i].size(1);
    EXPECT_TRUE(returned[i].is_same(outputs[i]));
    EXPECT_EQ(outputs[i]._version(), 1);
  }
}

TEST(ScatterRulesTest, SplitsSixRowsIntoTwoAndFour) {
  const at::Tensor input = random_tensor({6, 4}, 1);
  const std::vector<at::Tensor> pieces = scatter(input, {kCpu, kCpu}, sized({2, 4}));
  EXPECT_THAT(pieces[0], BitwiseEqual(input.narrow(0, 0, 2)));
  EXPECT_THAT(pieces[1], BitwiseEqual(input.narrow(0, 2, 4)));
}

TEST(ScatterRulesTest, UnevenSizesAlongTheLastDim) {
  const at::Tensor input = random_tensor({1, 7}, 1);
  for (const int64_t dim : {1, -1}) {
    const std::vector<at::Tensor> pieces =
        scatter(input, {kCpu, kCpu, kCpu}, sized(even_sizes(7, 3), dim));
    ASSERT_EQ(pieces.size(), 3U);
    EXPECT_EQ(pieces[0].size(1), 3);
    EXPECT_EQ(pieces[2].size(1), 2);
    EXPECT_THAT(at::cat(pieces, 1), BitwiseEqual(input));
  }
}

TEST(ScatterRulesTest, PiecesOnTheInputsDeviceAreViewsThatRecordNothing) {
  const at::Tensor input = random_tensor({4, 2}, 1).requires_grad_();
  const std::vector<at::Tensor> pieces = scatter(input, {kCpu, c10::Device("cpu:0")});
  EXPECT_EQ(pieces[0].data_ptr(), input.data_ptr());
  EXPECT_EQ(pieces[1].data_ptr(), input[2].data_ptr());
  for (const at::Tensor& piece : pieces) {
    EXPECT_FALSE(piece.requires_grad());
    EXPECT_FALSE(piece.is_view());
  }
  const auto version = input._version();
  pieces[1].zero_();
  EXPECT_EQ(input._version(), version + 1);
  EXPECT_EQ(pieces[0]._version(), version + 1);
}

TEST(ScatterRulesTest, PiecesOnOtherDevicesAreFreshInTheInputsFormat) {
  CollectiveCounters before = default_collectives(c10::kMeta).counters();
  const at::Tensor input = at::ones({4, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast);
  const std::vector<at::Tensor> pieces = scatter(input, {kCpu, kMeta});
  EXPECT_EQ(pieces[0].data_ptr(), input.data_ptr());
  EXPECT_TRUE(pieces[1].is_meta());
  EXPECT_TRUE(pieces[1].is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_EQ(default_collectives(c10::kMeta).counters().messages, before.messages + 1);
}

TEST(ScatterRulesTest, RejectsWrongArguments) {
  const at::Tensor input = at::ones({4, 4});
  EXPECT_THAT([&] { scatter(input, {}); },
              ThrowsError("[scatter] expected at least one device, got an empty list"));
  EXPECT_THAT([] { scatter(at::ones({}), {kCpu}); },
              ThrowsError("expected an input with at least one dimension, got a 0-d tensor"));
  EXPECT_THAT([] { scatter(at::Tensor(), {kCpu}); }, ThrowsError("expected a defined input"));
  EXPECT_THAT([] { scatter(at::eye(2).to_sparse(), {kCpu}); },
              ThrowsError("[scatter] expected a dense input"));
  EXPECT_THAT([&] { scatter(input, {kCpu}, along(2)); },
              ThrowsError("[scatter] expected dim in the range [-2, 1], got 2"));
  EXPECT_THAT([&] { scatter(input, {kCpu}, along(-3)); },
              ThrowsError("[scatter] expected dim in the range [-2, 1], got -3"));
  EXPECT_THAT(
      [&] {
        scatter(input, {kCpu, kCpu}, sized({4}));
      },
      ThrowsError("expected 2 chunk_sizes, one per device, got 1"));
  EXPECT_THAT(
      [&] {
        scatter(input, {kCpu, kCpu}, sized({2, 3}));
      },
      ThrowsError("that sum to 4, the size of dim 0, got a sum of 5"));
  EXPECT_THAT(
      [&] {
        scatter(input, {kCpu, kCpu}, sized({5, -1}));
      },
      ThrowsError("expected chunk_sizes of at least 0, got -1, at index 1"));
}

TEST(ScatterOutTest, LeavesTheViewsOfTheInputAlone) {
  const at::Tensor input = random_tensor({4, 2}, 1);
  const auto version = input._version();
  scatter_out(input, scatter(input, {kCpu, kCpu}));
  EXPECT_EQ(input._version(), version);
}

TEST(ScatterOutTest, RejectsOutputsThatDoNotFitBeforeWriting) {
  const at::Tensor input = at::ones({4, 4});
  const at::Tensor good = at::zeros({2, 4});
  const auto call = [&](const at::Tensor& bad) { scatter_out(input, {good, bad}); };
  EXPECT_THAT([&] { scatter_out(input, {}); },
              ThrowsError("[scatter_out] expected at least one output, got an empty list"));
  EXPECT_THAT(
      [&] {
        scatter_out(input, {good, good.clone()}, sized({2, 2}));
      },
      ThrowsError("expected no chunk_sizes, since the outputs define them"));
  EXPECT_THAT([&] { call(at::zeros({2})); },
              ThrowsError("expected 2 dimensions, got 1, at index 1"));
  EXPECT_THAT(
      [&] {
        call(at::zeros({2, 5}));
      },
      ThrowsError("expected size [4, 4] outside dim 0, got [2, 5], at index 1"));
  EXPECT_THAT(
      [&] {
        call(at::zeros({3, 4}));
      },
      ThrowsError("expected outputs whose sizes of dim 0 sum to 4, got a sum of 5"));
  EXPECT_THAT(
      [&] {
        call(at::zeros({2, 4}, at::kInt));
      },
      ThrowsError("expected dtype Float, got Int, at index 1"));
  EXPECT_THAT([&] { call(at::Tensor()); }, ThrowsError("expected a defined output"));
  EXPECT_THAT([&] { call(input.narrow(0, 1, 2)); },
              ThrowsError("expected an output apart from the input, got one that overlaps it"));
  EXPECT_THAT(good, BitwiseEqual(at::zeros({2, 4})));
}

}  // namespace
}  // namespace lockstep::comm
