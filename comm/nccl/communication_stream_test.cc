// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/communication_stream.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "testing/simdev/test_environment.h"

namespace lockstep::comm::nccl {
namespace {

using ::lockstep::simdev::finds_fault;

// Freed memory is there for reuse at once, for those that may have it.
const bool kDevicesInUse =
    simdev::use_in_tests({/*devices=*/2, /*memory_bytes=*/size_t{1} << 20, /*quarantine_bytes=*/0});

at::Tensor ones_on(int index) { return at::ones({8}, at::device(simdev::device(index))); }

// What a collective would do there.
void add_one(const c10::Stream& stream, const at::Tensor& tensor) {
  const c10::StreamGuard guard(stream);
  tensor.add_(1);
}

TEST(CommunicationStreamTest, IsOneForEachDeviceAndNobodysCurrentOne) {
  const c10::Stream first = communication_stream(simdev::device(0));
  EXPECT_EQ(first.device(), simdev::device(0));
  EXPECT_EQ(communication_stream(simdev::device(1)).device(), simdev::device(1));
  std::thread([&first] { EXPECT_EQ(communication_stream(simdev::device(0)), first); }).join();
  const at::Tensor x = ones_on(0);
  EXPECT_TRUE(finds_fault([&] { add_one(first, x); }, {"nothing orders it after"}));
}

TEST(CommunicationStreamTest, WorkComesAfterWhatCurrentStreamsHoldAndBeforeWhatTheyGetLater) {
  const at::Tensor x = ones_on(0);
  const at::Tensor y = ones_on(1);
  OnCommunicationStreams streams({simdev::device(0), simdev::device(1)});
  EXPECT_EQ(streams.stream(1), communication_stream(simdev::device(1)));
  add_one(streams.stream(0), x);
  add_one(streams.stream(1), y);
  streams.finish();
  EXPECT_TRUE(at::equal((x + 1).cpu(), at::full({8}, 3)));
  EXPECT_TRUE(at::equal((y + 1).cpu(), at::full({8}, 3)));
}

TEST(CommunicationStreamTest, ResultsAreNotReadyBeforeTheEnd) {
  const at::Tensor x = ones_on(0);
  OnCommunicationStreams streams({simdev::device(0), simdev::device(1)});
  add_one(streams.stream(0), x);
  EXPECT_TRUE(finds_fault([&] { x + 1; }, {"nothing orders it after"}));
}

TEST(CommunicationStreamTest, AnExceptionEndsTheBracketToo) {
  const at::Tensor x = ones_on(0);
  EXPECT_THROW(
      {
        const OnCommunicationStreams streams({simdev::device(0), simdev::device(1)});
        add_one(streams.stream(0), x);
        throw std::runtime_error("a refused launch");
      },
      std::runtime_error);
  EXPECT_TRUE(at::equal((x + 1).cpu(), at::full({8}, 3)));
}

// The last owner lets go while the collective runs.
TEST(CommunicationStreamTest, MemoryInUseMayBeFreedBeforeTheEnd) {
  const auto free_early = [](bool in_use) {
    at::Tensor x = ones_on(0);
    const OnCommunicationStreams streams({simdev::device(0), simdev::device(1)});
    if (in_use) {
      streams.use(x, 0);
    }
    add_one(streams.stream(0), x);
    x.reset();
    ones_on(0);
  };
  EXPECT_TRUE(finds_fault([&] { free_early(false); }, {"record_stream"}));
  free_early(true);
}

}  // namespace
}  // namespace lockstep::comm::nccl
