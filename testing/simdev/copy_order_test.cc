// SPDX-License-Identifier: Apache-2.0
// What copies, operators that give the host a value, and resized memory order and what they leave
// unordered, as CUDA does.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "testing/matchers.h"
#include "testing/simdev/checker.h"
#include "testing/simdev/counters.h"
#include "testing/simdev/simdev.h"
#include "testing/simdev/stream_test_util.h"
#include "testing/simdev/test_environment.h"

namespace lockstep::simdev {
namespace {

using lockstep::testing::BitwiseEqual;
using lockstep::testing::ThrowsError;

const bool kDevicesInUse = use_in_tests();

class CopyOrderTest : public ::testing::Test {
 protected:
  // The fault that the thrown one left for take_reports() too.
  void TearDown() override { take_reports(); }

  const c10::Stream a_ = side_stream(1), b_ = side_stream(1);
};

at::Tensor pinned(double value) { return at::full({64}, value).pin_memory(); }

TEST_F(CopyOrderTest, BlockingCopyToADeviceIsReadyOnAllStreams) {
  const at::Tensor there = on(a_, [] { return at::ones({64}).to(device(1)); });
  EXPECT_EQ(on(b_, [&] { return there.sum().item<double>(); }), 64);
}

TEST_F(CopyOrderTest, NonBlockingCopyToADeviceIsReadyOnItsStreamOnly) {
  for (const at::Tensor& host : {at::ones({64}), pinned(1)}) {
    const at::Tensor there = on(a_, [&] { return host.to(device(1), /*non_blocking=*/true); });
    EXPECT_THAT([&] { on(b_, [&] { return there + 1; }); }, ThrowsError("aten::copy_"));
    take_reports();
    order(a_, b_);
    EXPECT_EQ(on(b_, [&] { return there.sum().item<double>(); }), 64);
  }
}

TEST_F(CopyOrderTest, CopyToPageableMemoryMakesTheHostWait) {
  at::Tensor host = at::zeros({64});
  const at::Tensor there = on(a_, [&] {
    at::Tensor ones = at::ones({64}, device(1));
    host.copy_(ones, /*non_blocking=*/true);
    return ones;
  });
  EXPECT_THAT(host, BitwiseEqual(at::ones({64})));
  EXPECT_EQ(on(b_, [&] { return (there + 1).sum().item<double>(); }), 128);
}

TEST_F(CopyOrderTest, CopyToPinnedMemoryIsLateUnlessItIsConverted) {
  const at::Tensor there = at::ones({64}, device(1));
  at::Tensor late = pinned(0), converted = at::zeros({64}, at::kDouble).pin_memory(),
             transposed = at::zeros({8, 8}).pin_memory();
  converted.copy_(there, /*non_blocking=*/true);
  EXPECT_THAT(converted, BitwiseEqual(at::ones({64}, at::kDouble)));
  transposed.t().copy_(there.view({8, 8}), /*non_blocking=*/true);
  EXPECT_THAT(transposed, BitwiseEqual(at::ones({8, 8})));
  late.copy_(there, /*non_blocking=*/true);
  EXPECT_THAT(late, BitwiseEqual(at::zeros({64})));
  default_stream(1).synchronize();
  EXPECT_THAT(late, BitwiseEqual(at::ones({64})));
}

TEST_F(CopyOrderTest, BlockingCopyIsNotUndoneByALateOne) {
  at::Tensor host = pinned(0);
  host.copy_(at::full({64}, 2.0, device(1)), /*non_blocking=*/true);
  host.copy_(at::full({64}, 3.0, device(1)));
  default_stream(1).synchronize();
  EXPECT_THAT(host, BitwiseEqual(at::full({64}, 3.0)));
}

TEST_F(CopyOrderTest, BlockingCopyIsNotUndoneByALateOneOfAnotherDevice) {
  at::Tensor host = pinned(0);
  host.copy_(at::full({64}, 2.0, device(0)), /*non_blocking=*/true);
  host.copy_(at::full({64}, 3.0, device(1)));
  default_stream(0).synchronize();
  EXPECT_THAT(host, BitwiseEqual(at::full({64}, 3.0)));
}

TEST_F(CopyOrderTest, ConvertedSourceMayChangeAtOnce) {
  at::Tensor host = pinned(1);
  const at::Tensor there =
      host.to(at::TensorOptions(device(1)).dtype(at::kDouble), /*non_blocking=*/true);
  host.fill_(5);
  EXPECT_EQ(there.sum().item<double>(), 64);
}

TEST_F(CopyOrderTest, CopyToTheHostNeedsItsSourceInOrder) {
  const at::Tensor there = on(a_, [] { return at::ones({64}, device(1)); });
  EXPECT_THAT([&] { there.cpu(); }, ThrowsError("aten::copy_"));
}

TEST_F(CopyOrderTest, PeerCopyWaitsForTheOtherStreamBothWays) {
  const at::Tensor source = at::ones({64}, device(0));
  at::Tensor target = at::zeros({64}, device(1));
  target.fill_(3);
  target.copy_(source);  // after the fill, on the source's stream
  target.add_(1);
  source.fill_(9);
  EXPECT_EQ(target.sum().item<double>(), 128);
}

TEST_F(CopyOrderTest, PeerCopyNeedsItsTargetInOrder) {
  const at::Tensor source = at::ones({64}, device(0));
  const at::Tensor target = on(a_, [] { return at::zeros({64}, device(1)); });
  EXPECT_THAT([&] { target.copy_(source); }, ThrowsError("aten::copy_"));
  EXPECT_NO_THROW(on(a_, [&] { target.copy_(source); }));
}

TEST_F(CopyOrderTest, OperatorsThatGiveTheHostAValueMakeItWait) {
  const auto waits = [&](const std::function<void(const at::Tensor&)>& op) {
    const at::Tensor there = on(a_, [] { return at::ones({4}, device(1)); });
    const int64_t before = counters(1).host_syncs;
    on(a_, [&] { op(there); });
    const int64_t waited = counters(1).host_syncs - before;
    EXPECT_NO_THROW(on(b_, [&] { there + 1; }));
    b_.synchronize();
    return waited;
  };
  EXPECT_EQ(waits([](const at::Tensor& t) { t[0].item(); }), 1);
  EXPECT_EQ(waits([](const at::Tensor& t) { at::nonzero(t); }), 1);
  EXPECT_EQ(waits([](const at::Tensor& t) { t.masked_select(t > 0); }), 1);
  EXPECT_EQ(waits([](const at::Tensor& t) { at::_unique2(t); }), 1);
  EXPECT_EQ(waits([](const at::Tensor& t) { at::unique_dim(t, 0); }), 1);
  EXPECT_EQ(waits([](const at::Tensor& t) { at::unique_consecutive(t); }), 1);
  EXPECT_EQ(waits([](const at::Tensor& t) { t.equal(t); }), 1);
  EXPECT_EQ(waits([](const at::Tensor& t) { at::bincount(t.to(at::kLong)); }), 1);
  EXPECT_EQ(waits([](const at::Tensor& t) { t.repeat_interleave(t.to(at::kLong)); }), 1);
  EXPECT_EQ(waits([](const at::Tensor& t) { t.to_sparse(); }), 1);
}

TEST_F(CopyOrderTest, OrdinaryOperatorsDoNot) {
  const at::Tensor there = at::ones({4}, device(1));
  const int64_t before = counters(1).host_syncs;
  (there + 1).mul_(2).sum();
  EXPECT_EQ(counters(1).host_syncs, before);
}

TEST_F(CopyOrderTest, ViewsAndResizesWithinTheMemoryAreNoAccess) {
  const at::Tensor there = on(a_, [] { return at::ones({4, 4}, device(1)); });
  EXPECT_NO_THROW(on(b_, [&] {
    there.t().narrow(0, 1, 2).unfold(1, 2, 1);
    there.view({16}).as_strided({2, 2}, {1, 1}).detach().resize_({2, 1});
    at::view_as_complex(there.view({8, 2}));
  }));
}

TEST_F(CopyOrderTest, ResizeThatMovesIsAnAccess) {
  const at::Tensor there = on(a_, [] { return at::ones({4}, device(1)); });
  EXPECT_THAT([&] { on(b_, [&] { there.resize_({40}); }); }, ThrowsError("aten::resize_"));
  EXPECT_EQ(there.numel(), 4);
}

TEST_F(CopyOrderTest, SparseTensorsAreCheckedByTheirParts) {
  const at::Tensor sparse = on(a_, [] { return at::ones({3, 3}, device(1)).to_sparse() * 2; });
  EXPECT_NO_THROW(on(b_, [&] { sparse._nnz(), sparse._values(), sparse.is_coalesced(); }));
  EXPECT_THAT([&] { on(b_, [&] { sparse.to_dense(); }); }, ThrowsError("aten::"));
}

}  // namespace
}  // namespace lockstep::simdev
