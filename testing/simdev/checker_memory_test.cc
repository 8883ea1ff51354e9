// SPDX-License-Identifier: Apache-2.0
// Memory that is freed while it is in use, each beside the same program corrected.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "testing/matchers.h"
#include "testing/simdev/checker.h"
#include "testing/simdev/internal/memory.h"
#include "testing/simdev/simdev.h"
#include "testing/simdev/stream_test_util.h"
#include "testing/simdev/test_environment.h"

namespace lockstep::simdev {
namespace {

using lockstep::testing::AllClose;
using lockstep::testing::ThrowsError;

const bool kDevicesInUse = use_in_tests();

enum class BeforeFree { kNothing, kRecordStream, kJoin, kHostWaits };

class FreedMemoryTest : public ::testing::Test {
 protected:
  // Made on the default stream, read on side_, freed.
  void use_aside_and_free(BeforeFree correction) {
    const at::Tensor t = at::ones({1000}, device(1));
    order(default_stream(1), side_);
    on(side_, [&] { at::mul(t, 2); });
    switch (correction) {
      case BeforeFree::kNothing:
        break;
      case BeforeFree::kRecordStream:
        t.record_stream(side_);
        break;
      case BeforeFree::kJoin:
        order(side_, default_stream(1));
        break;
      case BeforeFree::kHostWaits:
        side_.synchronize();
        break;
    }
  }
  static at::Tensor reuse(int64_t numel = 1000) { return at::zeros({numel}, device(1)); }

  const c10::Stream side_ = side_stream(1);
};

TEST_F(FreedMemoryTest, IsNotReusedWhileAnotherStreamReadsIt) {
  use_aside_and_free(BeforeFree::kNothing);
  EXPECT_TRUE(finds_fault(
      [] { reuse(); }, {"freed memory is in use", "4000 bytes of simdev:1",
                        "'aten::mul.out' on stream " + std::to_string(side_.id()) + " of simdev:1",
                        "reads Float[1000], bytes [0, 4000)",
                        "given out again on stream 0 of simdev:1", "record_stream"}));
}

TEST_F(FreedMemoryTest, IsReportedForSmallerAllocationsToo) {
  use_aside_and_free(BeforeFree::kNothing);
  EXPECT_TRUE(finds_fault([] { reuse(10); }, {"freed memory is in use"}));
}

TEST_F(FreedMemoryTest, IsReusedAfterRecordStream) {
  use_aside_and_free(BeforeFree::kRecordStream);
  reuse();
}

TEST_F(FreedMemoryTest, IsReusedAfterItsStreamWaited) {
  use_aside_and_free(BeforeFree::kJoin);
  reuse();
}

TEST_F(FreedMemoryTest, IsReusedAfterTheHostWaited) {
  use_aside_and_free(BeforeFree::kHostWaits);
  reuse();
}

TEST_F(FreedMemoryTest, MayBeWaitedForAfterTheFreeIfBeforeTheNextAllocation) {
  use_aside_and_free(BeforeFree::kNothing);
  order(side_, default_stream(1));
  reuse();
}

TEST_F(FreedMemoryTest, IsNotWhatOtherStreamsOrDevicesAllocate) {
  use_aside_and_free(BeforeFree::kNothing);
  on(side_, [] { reuse(); });
  at::zeros({1000}, device(2));
  EXPECT_TRUE(finds_fault([] { reuse(); }, {"freed memory is in use"}));
}

TEST_F(FreedMemoryTest, IsNotWhatAnAllocationThatDoesNotFitGets) {
  use_aside_and_free(BeforeFree::kNothing);
  reuse(2000);
  order(side_, default_stream(1));
  reuse();
}

TEST_F(FreedMemoryTest, FaultNamesTheWriterThatWasNotWaitedFor) {
  {
    const at::Tensor t = at::ones({10}, device(1));
    order(default_stream(1), side_);
    on(side_, [&] { t.add_(2); });
  }
  EXPECT_TRUE(finds_fault([] { reuse(10); }, {"'aten::add.out'", "writes Float[10]"}));
}

TEST_F(FreedMemoryTest, IsAnErrorToUse) {
  void* address = nullptr;
  {
    const at::Tensor t = at::ones({10}, device(1));
    address = t.data_ptr();
    const at::Tensor view =
        at::from_blob(static_cast<float*>(address) + 2, {3}, at::TensorOptions(device(1)));
    EXPECT_THAT(view.cpu(), AllClose(at::ones({3})));
  }
  const at::Tensor dangling = at::from_blob(address, {10}, at::TensorOptions(device(1)));
  EXPECT_TRUE(finds_fault(
      [&] { at::add(dangling, 1); },
      {"memory is used after it was freed", "'aten::add.out'", "40 bytes of simdev:1"}));
}

TEST_F(FreedMemoryTest, HostMemoryIsNoMemoryOfADevice) {
  float values[4] = {};
  EXPECT_THAT([&] { at::from_blob(values, {4}, at::TensorOptions(device(1))); },
              ThrowsError("[simdev] expected memory of a device"));
}

}  // namespace
}  // namespace lockstep::simdev
