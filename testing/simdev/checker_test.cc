// SPDX-License-Identifier: Apache-2.0
// Accesses that nothing orders, each beside the same program corrected.
#include "testing/simdev/checker.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "testing/matchers.h"
#include "testing/simdev/simdev.h"
#include "testing/simdev/stream_test_util.h"
#include "testing/simdev/test_environment.h"

namespace lockstep::simdev {
namespace {

using lockstep::testing::AllClose;
using lockstep::testing::ThrowsError;

const bool kDevicesInUse = use_in_tests();

class CheckerTest : public ::testing::Test {
 protected:
  // Made on the default stream, which the host then waits for: any stream may use it.
  static at::Tensor ready(at::IntArrayRef sizes) {
    const at::Tensor tensor = at::zeros(sizes, device(1));
    default_stream(1).synchronize();
    return tensor;
  }

  const c10::Stream a_ = side_stream(1);
  const c10::Stream b_ = side_stream(1);
};

std::string name(const c10::Stream& stream) {
  return "stream " + std::to_string(stream.id()) +
         " of simdev:" + std::to_string(stream.device_index());
}

TEST_F(CheckerTest, ReadOnAnotherStreamNeedsAnEvent) {
  const at::Tensor t = ready({8, 8});
  on(a_, [&] { t.fill_(1); });
  EXPECT_TRUE(finds_fault([&] { on(b_, [&] { at::add(t, 1); }); },
                          {"race on a block of 256 bytes of simdev:1",
                           "'aten::add.out' on " + name(b_), "reads Float[8, 8], bytes [0, 256)",
                           "nothing orders it after 'aten::fill_.Scalar' on " + name(a_),
                           "which wrote Float[8, 8], bytes [0, 256)"}));
  order(a_, b_);
  EXPECT_THAT(on(b_, [&] { return at::add(t, 1).cpu(); }), AllClose(at::full({8, 8}, 2.0)));
}

TEST_F(CheckerTest, EventRecordedBeforeTheWriteOrdersNothing) {
  const at::Tensor t = ready({64});
  const c10::Event too_early = record(a_);
  on(a_, [&] { t.fill_(1); });
  b_.wait(too_early);
  EXPECT_TRUE(finds_fault([&] { on(b_, [&] { at::add(t, 1); }); }, {"'aten::add.out'"}));
  b_.wait(record(a_));
  on(b_, [&] { at::add(t, 1); });
}

TEST_F(CheckerTest, WriteNeedsToComeAfterReaders) {
  const at::Tensor t = ready({64});
  on(a_, [&] { at::add(t, 1); });
  EXPECT_TRUE(finds_fault([&] { on(b_, [&] { t.fill_(1); }); },
                          {"'aten::fill_.Scalar' on " + name(b_) + " writes",
                           "'aten::add.out' on " + name(a_) + ", which read"}));
  order(a_, b_);
  on(b_, [&] { t.fill_(1); });
}

TEST_F(CheckerTest, MemoryThatAKernelMakesIsWrittenByIt) {
  const at::Tensor t = ready({64});
  at::Tensor grown = ready({0});
  const at::Tensor made = on(a_, [&] { return at::roll(t, 1); });
  on(a_, [&] { at::linspace_out(grown, 0, 1, 64); });
  EXPECT_TRUE(finds_fault([&] { on(b_, [&] { at::add(made, 1); }); },
                          {"'aten::add.out'", "nothing orders it after 'aten::roll'"}));
  EXPECT_TRUE(finds_fault([&] { on(b_, [&] { at::add(grown, 1); }); },
                          {"'aten::add.out'", "nothing orders it after 'aten::linspace.out'"}));
}

TEST_F(CheckerTest, ReadersNeedNoOrderAmongThemselves) {
  const at::Tensor t = ready({64});
  for (const c10::Stream& stream : {a_, b_, default_stream(1)}) {
    on(stream, [&] { at::add(t, 1); });
  }
}

TEST_F(CheckerTest, FaultComesBeforeTheKernelRuns) {
  const at::Tensor t = ready({64});
  on(a_, [&] { t.fill_(1); });
  EXPECT_TRUE(finds_fault([&] { on(b_, [&] { t.fill_(2); }); }, {}));
  a_.synchronize();
  EXPECT_THAT(t.cpu(), AllClose(at::ones({64})));
}

TEST_F(CheckerTest, DisjointViewsDoNotCollide) {
  const at::Tensor t = ready({64});
  on(a_, [&] { t.narrow(0, 0, 32).fill_(1); });
  on(b_, [&] { t.narrow(0, 32, 32).fill_(2); });
}

TEST_F(CheckerTest, ColumnsBetweenColumnsDoNotCollide) {
  const at::Tensor t = ready({16, 4});
  on(a_, [&] { t.narrow(1, 0, 2).fill_(1); });
  on(b_, [&] { t.narrow(1, 2, 2).fill_(2); });
  EXPECT_TRUE(finds_fault([&] { on(b_, [&] { t.select(1, 1).fill_(3); }); }, {"Float[16]"}));
}

TEST_F(CheckerTest, OverlappingViewsCollide) {
  const at::Tensor t = ready({64});
  on(a_, [&] { t.narrow(0, 0, 32).fill_(1); });
  EXPECT_TRUE(finds_fault([&] { on(b_, [&] { t.narrow(0, 31, 2).fill_(2); }); },
                          {"bytes [124, 132)", "bytes [0, 128)"}));
  order(a_, b_);
  on(b_, [&] { t.narrow(0, 31, 2).fill_(2); });
}

TEST_F(CheckerTest, OrderGoesThroughOtherStreamsAndDevices) {
  const at::Tensor t = ready({64});
  on(a_, [&] { t.fill_(1); });
  const c10::Stream elsewhere = side_stream(2);
  order(a_, elsewhere);
  order(elsewhere, b_);
  on(b_, [&] { at::add(t, 1); });
}

TEST_F(CheckerTest, WhatTheHostWaitedForIsBeforeAllItLaunches) {
  const std::vector<std::function<void(const at::Tensor&)>> waits = {
      [&](const at::Tensor&) { a_.synchronize(); },
      [&](const at::Tensor&) { guard().synchronizeDevice(1); },
      [&](const at::Tensor&) { record(a_).synchronize(); },
      [&](const at::Tensor&) {
        const c10::Event event = record(a_);
        while (!event.query()) {
        }
      },
      [&](const at::Tensor&) {
        while (!a_.query()) {
        }
      },
      [&](const at::Tensor& t) { on(a_, [&] { t[0].item(); }); },
      [&](const at::Tensor& t) { on(a_, [&] { t.cpu(); }); },
      [&](const at::Tensor& t) { on(a_, [&] { at::equal(t, t); }); },
      [&](const at::Tensor& t) { on(a_, [&] { at::nonzero(t); }); },
  };
  std::vector<at::Tensor> kept;  // b_ reads them to the end
  for (size_t i = 0; i < waits.size(); ++i) {
    SCOPED_TRACE(i);
    const at::Tensor t = kept.emplace_back(ready({64}));
    on(a_, [&] { t.fill_(1); });
    waits[i](t);
    on(b_, [&] { at::add(t, 1); });
  }
}

TEST_F(CheckerTest, WaitingForAnotherStreamIsNotEnough) {
  const at::Tensor t = ready({64});
  on(a_, [&] { t.fill_(1); });
  b_.synchronize();
  guard().synchronizeDevice(2);
  EXPECT_TRUE(finds_fault([&] { on(b_, [&] { at::add(t, 1); }); }, {name(a_), name(b_)}));
}

TEST_F(CheckerTest, BatchNormWritesItsStatisticsInTrainingOnly) {
  const at::Tensor x = ready({8, 3}), mean = ready({3}), var = ready({3});
  const auto norm = [&](bool training) {
    at::batch_norm(x, {}, {}, mean, var, training, 0.1, 1e-5, /*cudnn_enabled=*/false);
  };
  on(a_, [&] { norm(false); });
  on(b_, [&] { norm(false); });
  EXPECT_TRUE(
      finds_fault([&] { on(b_, [&] { norm(true); }); },
                  {"'aten::native_batch_norm' on " + name(b_) + " writes Float[3]", name(a_)}));
  order(a_, b_);
  on(b_, [&] { norm(true); });
  EXPECT_TRUE(finds_fault([&] { on(a_, [&] { norm(false); }); },
                          {"reads Float[3]", name(b_) + ", which wrote Float[3]"}));
}

TEST_F(CheckerTest, NewMemoryIsReadyOnItsOwnStreamOnly) {
  ready({64}).fill_(1);  // so that the default stream is not idle
  const at::Tensor t = at::empty({64}, device(1));
  EXPECT_TRUE(finds_fault([&] { on(a_, [&] { t.fill_(1); }); },
                          {"nothing orders it after its allocation on " + name(default_stream(1)),
                           "the memory may have been in use there before"}));
  order(default_stream(1), a_);
  on(a_, [&] { t.fill_(1); });
}

TEST_F(CheckerTest, PeerCopyUnderSideStreamsIsReadyThereOnly) {
  const at::Tensor source = at::ones({64}, device(0));
  default_stream(0).synchronize();
  const auto copy_aside = [&] {
    return on(side_stream(0), [&] { return on(a_, [&] { return source.to(device(1)); }); });
  };
  const at::Tensor copy = copy_aside();
  EXPECT_TRUE(finds_fault([&] { at::add(copy, 1); },
                          {"'aten::add.out' on " + name(default_stream(1)), "simdev:0"}));
  order(a_, default_stream(1));
  EXPECT_THAT(at::add(copy, 1).cpu(), AllClose(at::full({64}, 2.0)));
}

TEST_F(CheckerTest, PeerCopyOnDefaultStreamsNeedsNothing) {
  const at::Tensor source = at::ones({64}, device(0));
  const at::Tensor copy = source.to(device(1));
  source.fill_(3);
  EXPECT_THAT(at::add(copy, 1).cpu(), AllClose(at::full({64}, 2.0)));
}

TEST_F(CheckerTest, OperandOfAnotherDeviceIsAnErrorThatNamesBoth) {
  const at::Tensor x = at::ones({4}, device(0)), y = at::ones({4}, device(1));
  EXPECT_THAT([&] { at::add(x, y); }, ThrowsError("simdev:0 and simdev:1"));
  EXPECT_THAT([&] { at::add(x, at::ones({4})); }, ThrowsError("simdev:0 and cpu"));
  EXPECT_THAT(
      [&] { x.index_select(0, at::ones({1}, at::TensorOptions(device(1)).dtype(at::kLong))); },
      ThrowsError("simdev:1"));

  EXPECT_THAT(at::add(x, y.to(device(0))).cpu(), AllClose(at::full({4}, 2.0)));
}

TEST_F(CheckerTest, CollectedFaultsLetTheProgramGoOn) {
  set_on_fault(OnFault::kCollect);
  const at::Tensor t = ready({64});
  on(a_, [&] { t.fill_(1); });
  const at::Tensor sum = on(b_, [&] { return at::add(t, 1); });
  on(b_, [&] { t.fill_(5); });
  set_on_fault(OnFault::kThrow);
  const std::vector<std::string> faults = take_reports();
  ASSERT_EQ(faults.size(), 2);
  EXPECT_NE(faults[0].find("aten::add.out"), std::string::npos) << faults[0];
  EXPECT_NE(faults[1].find("'aten::fill_.Scalar' on " + name(b_)), std::string::npos) << faults[1];
  EXPECT_TRUE(take_reports().empty());
  b_.synchronize();
  a_.synchronize();
  EXPECT_THAT(sum.cpu(), AllClose(at::full({64}, 2.0)));
}

TEST_F(CheckerTest, SaysNothingWhileOffAndNothingOfThatTimeLater) {
  const at::Tensor t = ready({64});
  on(a_, [&] { t.fill_(1); });
  set_checking(false);
  EXPECT_FALSE(checking());
  on(b_, [&] { t.fill_(2); });
  set_checking(true);
  EXPECT_TRUE(checking());
  on(a_, [&] { t.fill_(1); });
  EXPECT_TRUE(finds_fault([&] { on(b_, [&] { t.fill_(2); }); }, {}));
}

TEST_F(CheckerTest, ResetForgetsWhatWasBefore) {
  const at::Tensor t = ready({64});
  on(a_, [&] { t.fill_(1); });
  EXPECT_TRUE(reset().empty());
  on(b_, [&] { t.fill_(2); });
  EXPECT_TRUE(finds_fault([&] { at::add(t, 1); }, {}));
}

TEST_F(CheckerTest, ResetReturnsFaultsThatNobodyTook) {
  const at::Tensor t = ready({64});
  on(a_, [&] { t.fill_(1); });
  EXPECT_THROW(on(b_, [&] { t.fill_(2); }), RaceError);
  EXPECT_EQ(reset().size(), 1);
  EXPECT_TRUE(reset().empty());
}

}  // namespace
}  // namespace lockstep::simdev
