// SPDX-License-Identifier: Apache-2.0
#include "comm/reduce_add_coalesced.h"

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

using Row = std::vector<at::Tensor>;
const c10::Device kCpu(c10::kCPU);

Row mixed_row(uint64_t seed) {
  return {random_tensor({5}, seed, at::kLong),
          random_tensor({2, 3}, seed + 1, at::kDouble).to_sparse(),
          random_tensor({5}, seed + 2, at::kFloat),
          random_tensor({3, 3}, seed + 3, at::kLong).to_sparse(),
          random_tensor({10}, seed + 4, at::kInt),
          random_tensor({2, 7}, seed + 5, at::kFloat).to_sparse(),
          random_tensor({4, 6}, seed + 6, at::kFloat).t(),
          random_tensor({1}, seed + 7, at::kHalf),
          at::empty({0}, at::kByte)};
}

class ReduceAddCoalescedTest : public ::testing::TestWithParam<DeviceSet> {
 protected:
  size_t width() const { return GetParam().devices.size(); }
  // The tensors of `row` on device i of the set.
  Row on_device(size_t i, Row row) const {
    for (at::Tensor& tensor : row) {
      tensor = tensor.defined() ? tensor.to(GetParam().devices[i]) : tensor;
    }
    return row;
  }
  std::vector<Row> on_every_device(const Row& row) const {
    std::vector<Row> rows;
    for (size_t i = 0; i < width(); ++i) {
      rows.push_back(on_device(i, row));
    }
    return rows;
  }
  std::vector<at::Tensor> run(const std::vector<Row>& rows, int64_t buffer_bytes) const {
    std::vector<at::Tensor> sums =
        reduce_add_coalesced(rows, GetParam().devices[0], {buffer_bytes, GetParam().collectives});
    GetParam().sync();
    return sums;
  }
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS(ReduceAddCoalescedTest);

TEST_P(ReduceAddCoalescedTest, SumsEveryTensorInListOrderAndKeepsPositions) {
  std::vector<Row> rows;
  for (size_t i = 0; i < width(); ++i) {
    rows.push_back(on_device(i, mixed_row(100 * i)));
  }
  for (const int64_t buffer_bytes : {1, 8, 100, 1 << 20}) {
    const std::vector<at::Tensor> sums = run(rows, buffer_bytes);
    ASSERT_EQ(sums.size(), rows[0].size());
    for (size_t t = 0; t < sums.size(); ++t) {
      at::Tensor expected = rows[0][t].to_dense().cpu();
      for (size_t i = 1; i < rows.size(); ++i) {
        expected = expected + rows[i][t].to_dense().cpu();
      }
      EXPECT_EQ(sums[t].device(), GetParam().devices[0]);
      EXPECT_EQ(sums[t].toString(), rows[0][t].toString());
      EXPECT_THAT(sums[t].to_dense(), BitwiseEqual(expected)) << "tensor " << t;
      if (!sums[t].is_sparse()) {
        EXPECT_EQ(sums[t].strides(), rows[0][t].strides());
      }
    }
  }
}

TEST_P(ReduceAddCoalescedTest, EachSumIsFreshWithAVersionCounterOfItsOwn) {
  const std::vector<Row> rows = on_every_device(mixed_row(1));
  const Row before = mixed_row(1);
  const std::vector<at::Tensor> sums = run(rows, 100);
  for (const at::Tensor& changed : sums) {
    std::vector<uint64_t> versions;
    for (const at::Tensor& sum : sums) {
      versions.push_back(sum._version());
    }
    changed.zero_();
    for (size_t t = 0; t < sums.size(); ++t) {
      EXPECT_EQ(sums[t]._version(), versions[t] + (sums[t].is_same(changed) ? 1 : 0));
    }
  }
  for (size_t t = 0; t < before.size(); ++t) {
    EXPECT_THAT(rows[0][t], BitwiseEqual(before[t])) << "inputs do not share memory with sums";
  }
}

TEST_P(ReduceAddCoalescedTest, UndefinedCountsAsZeroAndUndefinedInAllStaysUndefined) {
  std::vector<Row> rows = on_every_device({at::Tensor(), at::Tensor(), at::ones({3})});
  rows.back()[1] = -at::zeros({2}, GetParam().devices.back());
  const std::vector<at::Tensor> sums = run(rows, 100);
  EXPECT_FALSE(sums[0].defined());
  EXPECT_THAT(sums[1], BitwiseEqual(-at::zeros({2})));
  EXPECT_FALSE(sums[1].is_same(rows.back()[1]));
  EXPECT_THAT(sums[2], BitwiseEqual(at::full({3}, static_cast<double>(width()), at::kFloat)));
}

TEST_P(ReduceAddCoalescedTest, SparseInSomeRowsBecomesDense) {
  std::vector<Row> rows = on_every_device({at::ones({3}), at::eye(3)});
  rows[0][1] = rows[0][1].to_sparse();
  const at::Tensor sum = run(rows, 100)[1];
  EXPECT_EQ(sum.is_sparse(), width() == 1);
  EXPECT_THAT(sum.to_dense(), BitwiseEqual(static_cast<double>(width()) * at::eye(3)));
}

TEST_P(ReduceAddCoalescedTest, SumsTensorsWhoseStridesDifferOverRows) {
  const at::Tensor a = random_tensor({3, 4}, 1);
  const at::Tensor wide = random_tensor({3, 8}, 2);
  const at::Tensor gaps = wide.slice(1, 0, 8, 2);
  std::vector<Row> rows = on_every_device({a, wide});
  for (Row& row : rows) {
    row[1] = row[1].slice(1, 0, 8, 2);
  }
  rows.back() = {rows.back()[0].t().contiguous().t(), rows.back()[1].contiguous()};
  at::Tensor expected = a.clone();
  at::Tensor expected_gaps = gaps.clone();
  for (size_t i = 1; i < width(); ++i) {
    expected += a;
    expected_gaps += gaps;
  }
  const std::vector<at::Tensor> sums = run(rows, 1 << 20);
  EXPECT_THAT(sums[0], BitwiseEqual(expected));
  EXPECT_THAT(sums[1], BitwiseEqual(expected_gaps));
}

TEST_P(ReduceAddCoalescedTest, SumsNeedNoGradient) {
  std::vector<Row> rows = on_every_device({at::ones({3}), at::ones({2})});
  for (Row& row : rows) {
    row[0].requires_grad_();
  }
  for (const at::Tensor& sum : run(rows, 100)) {
    EXPECT_FALSE(sum.requires_grad());
    EXPECT_FALSE(sum.is_view());
  }
}

TEST(ReduceAddCoalescedRulesTest, SendsOneMessagePerGroupAndRowToAnotherDevice) {
  CopyCollectives engine;
  const std::vector<Row> rows(2, {at::ones({4}), at::ones({2}), at::ones({3}, at::kDouble)});
  const std::vector<at::Tensor> sums =
      reduce_add_coalesced(rows, c10::Device("meta"), {1 << 20, &engine});
  EXPECT_EQ(engine.counters().calls, 2);
  EXPECT_EQ(engine.counters().messages, 4);
  EXPECT_EQ(engine.counters().bytes, 2 * (24 + 24));
  EXPECT_TRUE(sums[2].is_meta());
  EXPECT_EQ(sums[1].sizes(), at::IntArrayRef({2}));
}

TEST(ReduceAddCoalescedRulesTest, SumsOnOneDeviceAreNoMessages) {
  CopyCollectives engine;
  reduce_add_coalesced({Row{at::ones({4})}, Row{at::ones({4})}}, kCpu, {8, &engine});
  EXPECT_EQ(engine.counters().calls, 0);
}

TEST(ReduceAddCoalescedRulesTest, RowsWithoutTensorsGiveNoSums) {
  EXPECT_TRUE(reduce_add_coalesced({Row{}, Row{}}, kCpu).empty());
}

TEST(ReduceAddCoalescedRulesTest, RejectsInputsThatDoNotFit) {
  const Row good = {at::ones({2}), at::ones({2, 3})};
  const auto call = [&](const at::Tensor& bad) {
    reduce_add_coalesced({good, Row{at::ones({2}), bad}}, kCpu);
  };
  EXPECT_THAT([] { reduce_add_coalesced({}, kCpu); },
              ThrowsError("[reduce_add_coalesced] expected at least one row of inputs, got none"));
  EXPECT_THAT(
      [&] {
        reduce_add_coalesced({good, Row{good[0]}}, kCpu);
      },
      ThrowsError("expected 2 inputs, got 1, at row 1"));
  EXPECT_THAT(
      [&] {
        call(at::ones({3, 2}));
      },
      ThrowsError("expected size [2, 3], got [3, 2], at row 1, index 1"));
  EXPECT_THAT(
      [&] {
        call(at::ones({2, 3}, at::kInt));
      },
      ThrowsError("expected dtype Float, got Int, at row 1, index 1"));
  EXPECT_THAT([&] { call(at::eye(3).to_sparse_csr()); },
              ThrowsError("expected a dense or sparse COO input"));
  EXPECT_THAT(
      [] {
        reduce_add_coalesced({Row{at::eye(2).to_sparse(2)}, Row{at::eye(2).to_sparse(1)}}, kCpu);
      },
      ThrowsError("expected 2 sparse dims, got 1, at row 1, index 0"));
}

}  // namespace
}  // namespace lockstep::comm
