// SPDX-License-Identifier: Apache-2.0
// Non-blocking copies from and to pinned memory, each fault beside the same program corrected.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "testing/matchers.h"
#include "testing/simdev/checker.h"
#include "testing/simdev/internal/memory.h"
#include "testing/simdev/simdev.h"
#include "testing/simdev/stream_test_util.h"
#include "testing/simdev/test_environment.h"

namespace lockstep::simdev {
namespace {

using lockstep::testing::AllClose;

const bool kDevicesInUse = use_in_tests();

at::Tensor pinned(at::IntArrayRef sizes, double value) {
  return at::full(sizes, value).pin_memory();
}

TEST(PinnedMemoryTest, IsKnownAsPinned) {
  const at::Tensor plain = at::ones({10});
  EXPECT_FALSE(plain.is_pinned());
  const at::Tensor copy = plain.pin_memory();
  EXPECT_TRUE(copy.is_pinned());
  EXPECT_TRUE(copy.narrow(0, 9, 1).is_pinned());
  EXPECT_TRUE(at::empty({3}, at::TensorOptions().pinned_memory(true)).is_pinned());
  EXPECT_FALSE(internal::is_pinned(static_cast<float*>(copy.data_ptr()) + 10));
  EXPECT_THAT(copy, AllClose(plain));
  EXPECT_EQ(copy[3].item<float>(), 1);
}

TEST(PinnedMemoryTest, SourceMustNotChangeBeforeTheCopyIsWaitedFor) {
  at::Tensor source = pinned({100}, 1);
  const at::Tensor copy = source.to(device(1), /*non_blocking=*/true);
  source[42] = 5;
  EXPECT_TRUE(finds_fault([] { default_stream(1).synchronize(); },
                          {"pinned source of a non-blocking copy changed too early",
                           "'aten::copy_' on stream 0 of simdev:1", "Float[100]"}));
}

TEST(PinnedMemoryTest, SourceMayChangeAfterTheCopyIsWaitedFor) {
  at::Tensor source = pinned({100}, 1);
  const at::Tensor copy = source.to(device(1), /*non_blocking=*/true);
  default_stream(1).synchronize();
  source.fill_(5);
  default_stream(1).synchronize();
  EXPECT_THAT(copy.cpu(), AllClose(at::ones({100})));
}

TEST(PinnedMemoryTest, SourceOfABlockingCopyMayChangeAtOnce) {
  at::Tensor source = pinned({100}, 1);
  const at::Tensor copy = source.to(device(1));
  source.fill_(5);
  guard().synchronizeDevice(1);
  EXPECT_THAT(copy.cpu(), AllClose(at::ones({100})));
}

TEST(PinnedMemoryTest, PageableSourceMayChangeAtOnce) {
  at::Tensor source = at::ones({100});
  const at::Tensor copy = source.to(device(1), /*non_blocking=*/true);
  source.fill_(5);
  guard().synchronizeDevice(1);
  EXPECT_THAT(copy.cpu(), AllClose(at::ones({100})));
}

TEST(PinnedMemoryTest, DestinationIsStaleUntilTheHostWaits) {
  const at::Tensor source = at::full({100}, 3.0, device(1));
  const std::vector<std::function<void()>> waits = {
      [] { default_stream(1).synchronize(); },
      [] { guard().synchronizeDevice(1); },
      [] { record(default_stream(1)).synchronize(); },
      [] {
        const c10::Event event = record(default_stream(1));
        while (!event.query()) {
        }
      },
  };
  for (size_t i = 0; i < waits.size(); ++i) {
    SCOPED_TRACE(i);
    const at::Tensor destination = pinned({100}, 1);
    destination.copy_(source, /*non_blocking=*/true);
    EXPECT_THAT(destination, AllClose(at::ones({100})));
    default_stream(2).synchronize();
    EXPECT_THAT(destination, AllClose(at::ones({100})));
    waits[i]();
    EXPECT_THAT(destination, AllClose(at::full({100}, 3.0)));
  }
}

TEST(PinnedMemoryTest, DestinationTakesTheValuesOfTheTimeOfTheCopy) {
  const at::Tensor source = at::full({100}, 3.0, device(1));
  const at::Tensor destination = pinned({100}, 1);
  destination.copy_(source, /*non_blocking=*/true);
  source.fill_(4);
  guard().synchronizeDevice(1);
  EXPECT_THAT(destination, AllClose(at::full({100}, 3.0)));
}

TEST(PinnedMemoryTest, EventBeforeTheCopyDoesNotWaitForIt) {
  const at::Tensor source = at::full({100}, 3.0, device(1));
  const at::Tensor destination = pinned({100}, 1);
  const c10::Event before = record(default_stream(1));
  destination.copy_(source, /*non_blocking=*/true);
  before.synchronize();
  EXPECT_THAT(destination, AllClose(at::ones({100})));
}

TEST(PinnedMemoryTest, LaterCopiesOfTheStreamSeeEarlierOnes) {
  const at::Tensor source = at::full({100}, 3.0, device(1));
  const at::Tensor buffer = pinned({100}, 1);
  buffer.copy_(source, /*non_blocking=*/true);
  const at::Tensor there = buffer.to(device(1), /*non_blocking=*/true);
  source.fill_(4);
  buffer.copy_(source, /*non_blocking=*/true);
  const at::Tensor there_later = buffer.to(device(1), /*non_blocking=*/true);
  EXPECT_THAT(there.cpu(), AllClose(at::full({100}, 3.0)));
  EXPECT_THAT(there_later.cpu(), AllClose(at::full({100}, 4.0)));
}

TEST(PinnedMemoryTest, OneStreamMayUseABufferInTurns) {
  const at::Tensor buffer = pinned({100}, 1);
  const at::Tensor there = buffer.to(device(1), /*non_blocking=*/true);
  buffer.copy_(at::add(there, 1));  // blocking
  EXPECT_THAT(buffer, AllClose(at::full({100}, 2.0)));
  guard().synchronizeDevice(1);
}

TEST(PinnedMemoryTest, CopiesArriveWhileTheCheckerIsOff) {
  set_checking(false);
  const at::Tensor destination = pinned({100}, 1);
  destination.copy_(at::full({100}, 3.0, device(1)), /*non_blocking=*/true);
  default_stream(1).synchronize();
  set_checking(true);
  EXPECT_THAT(destination, AllClose(at::full({100}, 3.0)));
}

}  // namespace
}  // namespace lockstep::simdev
