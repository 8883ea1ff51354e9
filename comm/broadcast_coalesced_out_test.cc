// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/broadcast_coalesced.h"
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

using Row = std::vector<at::Tensor>;

class BroadcastCoalescedOutTest : public ::testing::TestWithParam<DeviceSet> {
 protected:
  at::Tensor at_home(const at::Tensor& tensor) const { return tensor.to(GetParam().devices[0]); }
  std::vector<Row> empty_rows(const Row& tensors) const {
    std::vector<Row> rows;
    for (const c10::Device device : GetParam().devices) {
      rows.emplace_back();
      for (const at::Tensor& tensor : tensors) {
        rows.back().push_back(at::empty_like(tensor, tensor.options().device(device)));
      }
    }
    return rows;
  }
  void run(const Row& tensors, const std::vector<Row>& rows) const {
    broadcast_coalesced_out(tensors, rows, {100, GetParam().collectives});
    GetParam().sync();
  }
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS(BroadcastCoalescedOutTest);

TEST_P(BroadcastCoalescedOutTest, CopiesIntoExistingStorageAndRaisesEachVersionOnce) {
  const Row on_host = {random_tensor({5}, 1, at::kFloat), random_tensor({3, 4}, 2).t(),
                       random_tensor({}, 3, at::kLong), at::empty({0}, at::kByte),
                       random_tensor({2, 3, 4, 5}, 4).contiguous(at::MemoryFormat::ChannelsLast)};
  Row home;
  for (const at::Tensor& tensor : on_host) {
    home.push_back(at_home(tensor));
  }
  for (const Row& tensors : {home, on_host}) {
    const std::vector<Row> rows = empty_rows(tensors);
    std::vector<void*> addresses;
    for (const Row& row : rows) {
      addresses.push_back(row[0].data_ptr());
    }
    run(tensors, rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(rows[i][0].data_ptr(), addresses[i]);
      for (size_t t = 0; t < tensors.size(); ++t) {
        EXPECT_THAT(rows[i][t], BitwiseEqual(tensors[t]));
        if (tensors[t].numel() != 0) {
          EXPECT_EQ(rows[i][t]._version(), 1);
        }
      }
    }
  }
}

TEST_P(BroadcastCoalescedOutTest, CopiesBetweenDifferentStrides) {
  const Row tensors = {at_home(random_tensor({4, 6}, 1)),
                       at_home(random_tensor({8, 6}, 2)).slice(0, 0, 8, 2),
                       at_home(random_tensor({3}, 3, at::kComplexDouble)).conj()};
  std::vector<Row> rows;
  for (const c10::Device device : GetParam().devices) {
    const auto on_device = tensors[0].options().device(device);
    rows.push_back({at::empty({6, 4}, on_device).t(), at::empty({4, 6}, on_device),
                    at::empty({3}, on_device.dtype(at::kComplexDouble))});
  }
  run(tensors, rows);
  for (const Row& row : rows) {
    EXPECT_THAT(row[0], BitwiseEqual(tensors[0]));
    EXPECT_THAT(row[1], BitwiseEqual(tensors[1]));
    EXPECT_THAT(row[2], BitwiseEqual(tensors[2].resolve_conj()));
    EXPECT_EQ(row[0]._version(), 1);
  }
}

TEST_P(BroadcastCoalescedOutTest, TrainableCopiesStayLeavesThatRequireGrad) {
  const Row tensors = {at_home(random_tensor({5}, 1)).requires_grad_()};
  const std::vector<Row> rows = empty_rows(tensors);
  for (const Row& row : rows) {
    at::Tensor(row[0]).requires_grad_();
  }
  run(tensors, rows);
  for (const Row& row : rows) {
    EXPECT_TRUE(row[0].is_leaf());
    EXPECT_TRUE(row[0].requires_grad());
    EXPECT_THAT(row[0], BitwiseEqual(tensors[0]));
  }
}

TEST_P(BroadcastCoalescedOutTest, LeavesSharedMemoryAlone) {
  const at::Tensor tensor = at_home(at::ones({4}));
  const at::Tensor alias = tensor.variable_data();
  const auto version = tensor._version();
  broadcast_coalesced_out(tensor, {Row{tensor}, Row{alias}});
  EXPECT_EQ(tensor._version(), version);
  EXPECT_EQ(alias._version(), 0);
}

TEST(BroadcastCoalescedOutRulesTest, SendsOneMessagePerGroupToEachOtherDevice) {
  CopyCollectives engine;
  const Row tensors = {at::ones({4}), at::ones({2, 2}), at::ones({1}, at::kDouble)};
  Row away;
  Row near;
  for (const at::Tensor& tensor : tensors) {
    away.push_back(at::empty_like(tensor, tensor.options().device(at::kMeta)));
    near.push_back(at::empty_like(tensor));
  }
  broadcast_coalesced_out(tensors, {near, away, away}, {1 << 20, &engine});
  EXPECT_EQ(engine.counters().calls, 2);
  EXPECT_EQ(engine.counters().messages, 4);
  EXPECT_EQ(engine.counters().bytes, 2 * (16 + 16 + 8));
  EXPECT_THAT(near[1], BitwiseEqual(tensors[1]));
}

TEST(BroadcastCoalescedOutRulesTest, EmptyListsAreFine) {
  broadcast_coalesced_out({}, {});
  broadcast_coalesced_out({}, {Row{}, Row{}});
  broadcast_coalesced_out(at::ones({2}), {});
}

TEST(BroadcastCoalescedOutRulesTest, RejectsWhatDoesNotFitBeforeWriting) {
  const Row tensors = {at::ones({4}), at::ones({2, 3})};
  const Row good = {at::zeros({4}), at::zeros({2, 3})};
  const auto call = [&](const at::Tensor& bad) {
    broadcast_coalesced_out(tensors, {good, Row{at::zeros({4}), bad}});
  };
  EXPECT_THAT(
      [&] {
        broadcast_coalesced_out(tensors, {good, Row{good[0]}});
      },
      ThrowsError("[broadcast_coalesced_out] expected 2 copies, got 1, at row 1"));
  EXPECT_THAT(
      [&] {
        call(at::zeros({3, 2}));
      },
      ThrowsError("expected a copy of size [2, 3], got [3, 2], at row 1, index 1"));
  EXPECT_THAT(
      [&] {
        call(at::zeros({2, 3}, at::kInt));
      },
      ThrowsError("expected a copy of dtype Float, got Int, at row 1, index 1"));
  EXPECT_THAT([&] { call(at::Tensor()); }, ThrowsError("expected a defined copy"));
  EXPECT_THAT([&] { call(at::zeros({2, 3}).to_sparse()); }, ThrowsError("expected a dense copy"));
  EXPECT_THAT(
      [&] {
        call(at::zeros({2, 3}, at::device(at::kMeta)));
      },
      ThrowsError("expected all copies of one row on cpu, got meta, at row 1, index 1"));
  EXPECT_THAT(
      [&] {
        call(at::zeros({1, 3}).expand({2, 3}));
      },
      ThrowsError("expected an output whose elements have memory of their own"));
  EXPECT_THAT(good[0], BitwiseEqual(at::zeros({4})));
  EXPECT_THAT([&] { broadcast_coalesced_out({at::Tensor()}, {good}); },
              ThrowsError("expected a defined tensor"));
  EXPECT_THAT(
      [&] {
        broadcast_coalesced_out({good[0], good[0].to(at::kMeta)}, {good});
      },
      ThrowsError("expected all tensors on cpu, got meta, at index 1"));
  const at::Tensor buffer = at::zeros({9});
  EXPECT_THAT(
      [&] { broadcast_coalesced_out(buffer.narrow(0, 0, 6), {Row{buffer.narrow(0, 3, 6)}}); },
      ThrowsError("expected a copy apart from its tensor, got one that overlaps it, at row 0"));
}

}  // namespace
}  // namespace lockstep::comm
