// SPDX-License-Identifier: Apache-2.0
// Streams given to scatter: the copies run on them, and nobody else has to wait.
#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/copy_collectives.h"
#include "comm/current_streams.h"
#include "comm/scatter.h"
#include "testing/matchers.h"
#include "testing/random.h"
#include "testing/side_streams.h"
#include "testing/simdev/counters.h"
#include "testing/simdev/test_environment.h"

namespace lockstep::comm {
namespace {

using ::lockstep::simdev::finds_fault;
using ::lockstep::testing::BitwiseEqual;
using ::lockstep::testing::DeviceSet;
using ::lockstep::testing::host_waits;
using ::lockstep::testing::order;
using ::lockstep::testing::random_tensor;
using ::lockstep::testing::side_streams;
using ::lockstep::testing::ThrowsError;

const c10::Device kCpu(c10::kCPU);
const c10::Device kMeta(c10::kMeta);

// Notes the stream of each copy.
class StreamRecorder : public CopyCollectives {
 public:
  void copy(const at::Tensor& source, const at::Tensor& destination) override {
    streams.push_back(current_streams(destination.device())[0]);
    CopyCollectives::copy(source, destination);
  }
  std::vector<c10::Stream> streams;
};

class ScatterStreamsTest : public ::testing::TestWithParam<DeviceSet> {
 protected:
  const std::vector<c10::Device>& devices() const { return GetParam().devices; }
  int64_t k() const { return static_cast<int64_t>(devices().size()); }
  at::Tensor batch() const { return random_tensor({3 * k(), 4}, 1, at::kFloat); }

  static ScatterOptions on(const std::vector<c10::Stream>& streams) {
    ScatterOptions options;
    options.streams.assign(streams.begin(), streams.end());
    return options;
  }
  std::vector<at::Tensor> outputs_with_old_values() const {
    std::vector<at::Tensor> outputs;
    for (const c10::Device device : devices()) {
      outputs.push_back(at::full({3, 4}, 7.0F, at::device(device)));
    }
    return outputs;
  }
  void expect_chunks(const std::vector<at::Tensor>& pieces, const at::Tensor& whole) const {
    const auto expected = whole.chunk(k());
    ASSERT_EQ(pieces.size(), expected.size());
    for (size_t i = 0; i < pieces.size(); ++i) {
      EXPECT_EQ(pieces[i].device(), devices()[i]);
      EXPECT_THAT(pieces[i] + 0, BitwiseEqual(expected[i]));  // reads on the current stream
    }
  }
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS_WITH_STREAMS(ScatterStreamsTest);

TEST_P(ScatterStreamsTest, CopiesFromPinnedMemoryRunOnTheGivenStreams) {
  const std::vector<c10::Stream> sides = side_streams(devices());
  StreamRecorder engine;
  ScatterOptions options = on(sides);
  options.streams[1] = std::nullopt;
  options.collectives = &engine;
  std::vector<c10::Stream> expected = sides;
  expected[1] = current_streams(devices())[1];
  const at::Tensor pinned = batch().pin_memory();
  const auto pieces = scatter(pinned, devices(), options);
  EXPECT_EQ(engine.streams, expected);
  expect_chunks(pieces, batch());
  engine.streams.clear();
  scatter_out(pinned, outputs_with_old_values(), options);
  EXPECT_EQ(engine.streams, expected);
}

TEST_P(ScatterStreamsTest, CurrentStreamsWaitForTheCopiesAndTheHostDoesNot) {
  simdev::reset_counters();
  const int64_t waits = host_waits(devices());
  const at::Tensor pinned = batch().pin_memory();
  const auto pieces = scatter(pinned, devices(), on(side_streams(devices())));
  EXPECT_EQ(host_waits(devices()), waits);
  for (const c10::Device device : devices()) {
    EXPECT_EQ(simdev::counters(device.index()).host_to_device_copies, 1);
    EXPECT_EQ(simdev::counters(device.index()).host_to_device_bytes, 48);
  }
  const std::vector<c10::Stream> others = [&] {
    std::vector<c10::Stream> streams;
    for (const c10::Device device : devices()) {
      streams.push_back(c10::impl::VirtualGuardImpl(device.type()).getNewStream(device));
    }
    return streams;
  }();
  for (size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_TRUE(finds_fault(
        [&] {
          const c10::StreamGuard other(others[i]);
          pieces[i] + 1;
        },
        {"nothing orders it after 'aten::copy_'"}));
  }
  expect_chunks(pieces, batch());
}

TEST_P(ScatterStreamsTest, CurrentStreamsMayBeSideStreamsThemselves) {
  const std::vector<c10::Stream> sides = side_streams(devices());
  const c10::MultiStreamGuard current(sides);
  const at::Tensor pinned = batch().pin_memory();
  expect_chunks(scatter(pinned, devices(), on(side_streams(devices()))), batch());
}

TEST_P(ScatterStreamsTest, CopiesWaitForEarlierWorkOnTheOutputs) {
  const std::vector<c10::Stream> copying = side_streams(devices());
  const at::Tensor pinned = batch().pin_memory();
  const std::vector<at::Tensor> outputs = outputs_with_old_values();
  for (const at::Tensor& output : outputs) {
    output.mul_(2);
  }
  expect_chunks(scatter_out(pinned, outputs, on(copying)), batch());
}

TEST_P(ScatterStreamsTest, SourcesMayLieOnADevice) {
  for (const c10::Device source : {devices()[0], devices().back()}) {
    const at::Tensor whole = batch().to(source) * 1;
    const std::vector<c10::Stream> copying = side_streams(devices());
    expect_chunks(scatter(whole, devices(), on(copying)), batch());
    expect_chunks(scatter_out(whole, outputs_with_old_values(), on(copying)), batch());
    whole.zero_();
  }
}

TEST_P(ScatterStreamsTest, SourcesMayBePageableOrOfAnyStrides) {
  const std::vector<c10::Stream> copying = side_streams(devices());
  expect_chunks(scatter(batch(), devices(), on(copying)), batch());
  ScatterOptions columns = on(copying);
  columns.dim = 1;
  const at::Tensor turned = batch().t().contiguous().pin_memory();
  const auto pieces = scatter(turned, devices(), columns);
  for (int64_t i = 0; i < k(); ++i) {
    EXPECT_THAT(pieces[i] + 0, BitwiseEqual(turned.narrow(1, 3 * i, 3)));
  }
}

TEST_P(ScatterStreamsTest, TheBatchMayChangeOnceTheCurrentStreamsAreDone) {
  const at::Tensor pinned = batch().pin_memory();
  const auto pieces = scatter(pinned, devices(), on(side_streams(devices())));
  GetParam().sync();
  pinned.zero_();
  expect_chunks(pieces, batch());
}

TEST_P(ScatterStreamsTest, ABatchThatChangesTooEarlyIsReported) {
  const at::Tensor pinned = batch().pin_memory();
  const auto pieces = scatter(pinned, devices(), on(side_streams(devices())));
  pinned[0].zero_();  // the rows of the first device
  EXPECT_TRUE(finds_fault([&] { GetParam().sync(); }, {"pinned"}));
}

TEST_P(ScatterStreamsTest, CopiesWaitForWorkThatStillUsesTheirMemory) {
  const std::vector<c10::Stream> copying = side_streams(devices());
  // Large, so that the simulated devices reuse the memory at once.
  const at::Tensor pinned = at::ones({k(), 5 << 20}).pin_memory();
  for (int step = 0; step < 3; ++step) {
    const auto pieces = scatter(pinned, devices(), on(copying));
    for (const at::Tensor& piece : pieces) {
      piece.add_(1);
    }
    EXPECT_EQ(pieces[1].min().item<float>(), 2);
  }
}

TEST(ScatterStreamsRulesTest, FewerStreamsThanPiecesAreFine) {
  const at::Tensor input = random_tensor({4}, 1);
  ScatterOptions options;
  options.streams = {c10::Stream(c10::Stream::DEFAULT, kCpu)};
  EXPECT_THAT(scatter(input, {kCpu, kCpu}, options)[1], BitwiseEqual(input.narrow(0, 2, 2)));
  options.streams = {std::nullopt, c10::Stream(c10::Stream::DEFAULT, kCpu)};
  const std::vector<at::Tensor> outputs = {at::empty({2}, at::kDouble),
                                           at::empty({2}, at::kDouble)};
  scatter_out(input, outputs, options);
  EXPECT_THAT(at::cat(outputs), BitwiseEqual(input));
}

TEST(ScatterStreamsRulesTest, RejectsStreamsOfAnotherDeviceAndTooMany) {
  const at::Tensor input = at::ones({4});
  ScatterOptions options;
  options.streams = {std::nullopt, c10::Stream(c10::Stream::DEFAULT, kMeta)};
  EXPECT_THAT(
      [&] {
        scatter(input, {kCpu, kCpu}, options);
      },
      ThrowsError("[scatter] expected a stream of cpu, got one of meta"));
  EXPECT_THAT(
      [&] {
        scatter_out(input, {at::ones({2}), at::ones({2})}, options);
      },
      ThrowsError("[scatter_out] expected a stream of cpu, got one of meta"));
  EXPECT_THAT([&] { scatter(input, {kCpu}, options); },
              ThrowsError("[scatter] expected at most 1 streams, got 2"));
}

}  // namespace
}  // namespace lockstep::comm
