// SPDX-License-Identifier: Apache-2.0
// The program of README.md.
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include "testing/simdev/simdev.h"
#include "testing/simdev/test_environment.h"

namespace {

// [readme: test]
using lockstep::simdev::device;

const bool kDevicesInUse = lockstep::simdev::use_in_tests();

// Doubles the batch on a stream of its own; a program for any accelerator.
at::Tensor double_aside(const at::Tensor& batch, bool wait_for_batch) {
  const c10::impl::VirtualGuardImpl streams(batch.device().type());
  const c10::Stream current = streams.getStream(batch.device());
  const c10::Stream aside = streams.getStreamFromGlobalPool(batch.device());
  if (wait_for_batch) {
    c10::Event batch_is_made(batch.device().type());
    batch_is_made.record(current);
    aside.wait(batch_is_made);
  }
  at::Tensor doubled;
  {
    const c10::StreamGuard guard(aside);
    doubled = batch * 2;
  }
  c10::Event is_doubled(batch.device().type());
  is_doubled.record(aside);
  current.wait(is_doubled);
  batch.record_stream(aside);
  doubled.record_stream(current);
  return doubled;
}

TEST(DoubleAsideTest, WaitsForTheBatch) {
  const at::Tensor batch = at::ones({64, 3}, device(1));
  EXPECT_TRUE(at::equal(double_aside(batch, true).cpu(), at::full({64, 3}, 2.0)));
}

TEST(DoubleAsideTest, WouldRaceWithoutTheWait) {
  const at::Tensor batch = at::ones({64, 3}, device(1));
  EXPECT_TRUE(lockstep::simdev::finds_fault([&] { double_aside(batch, false); },
                                            {"'aten::mul.out'", "nothing orders it after"}));
}
// [end]

}  // namespace
