// SPDX-License-Identifier: Apache-2.0
#include "comm/broadcast_coalesced.h"

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
using ::testing::IsEmpty;

const c10::Device kCpu(c10::kCPU);
const c10::Device kMeta(c10::kMeta);  // a second device that holds no data

at::Tensor random_sparse(at::IntArrayRef sizes, uint64_t seed, at::ScalarType dtype) {
  return random_tensor(sizes, seed, dtype).to_sparse();
}

// Dtypes and layouts in an order that no grouping would give.
std::vector<at::Tensor> mixed_list() {
  return {random_tensor({5}, 1, at::kLong),  random_sparse({2, 3}, 2, at::kDouble),
          random_tensor({5}, 3, at::kFloat), random_tensor({5}, 4, at::kLong),
          random_tensor({5}, 5, at::kLong),  random_sparse({3, 3}, 6, at::kLong),
          random_tensor({10}, 7, at::kInt),  random_sparse({2, 7}, 8, at::kFloat),
          random_tensor({5}, 9, at::kFloat)};
}

void expect_copy_of(const at::Tensor& copy, const at::Tensor& original) {
  EXPECT_FALSE(copy.is_same(original));
  EXPECT_EQ(copy.layout(), original.layout());
  EXPECT_EQ(copy.toString(), original.toString());
  EXPECT_THAT(copy, BitwiseEqual(original));
}

class BroadcastCoalescedTest : public ::testing::TestWithParam<DeviceSet> {
 protected:
  at::Tensor at_home(const at::Tensor& tensor) const {
    return tensor.defined() ? tensor.to(GetParam().devices[0]) : tensor;
  }
  std::vector<at::Tensor> at_home(std::vector<at::Tensor> tensors) const {
    for (at::Tensor& tensor : tensors) {
      tensor = at_home(tensor);
    }
    return tensors;
  }
  CoalesceOptions options(int64_t buffer_bytes) const {
    return {buffer_bytes, GetParam().collectives};
  }
  std::vector<std::vector<at::Tensor>> run(const std::vector<at::Tensor>& tensors,
                                           int64_t buffer_bytes) const {
    auto rows = broadcast_coalesced(tensors, GetParam().devices, options(buffer_bytes));
    GetParam().sync();
    return rows;
  }
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS(BroadcastCoalescedTest);

TEST_P(BroadcastCoalescedTest, KeepsOrderDtypeLayoutAndValues) {
  const std::vector<at::Tensor> tensors = at_home(mixed_list());
  for (const int64_t buffer_bytes : {1, 8, 100, 10 * 1024 * 1024}) {
    const auto rows = run(tensors, buffer_bytes);
    ASSERT_EQ(rows.size(), GetParam().devices.size());
    for (size_t t = 0; t < tensors.size(); ++t) {
      EXPECT_TRUE(rows[0][t].is_same(tensors[t]));
      for (size_t row = 1; row < rows.size(); ++row) {
        expect_copy_of(rows[row][t], tensors[t]);
        EXPECT_EQ(rows[row][t].device(), GetParam().devices[row]);
      }
    }
  }
}

TEST_P(BroadcastCoalescedTest, TakesTensorsOnTheHost) {
  const std::vector<at::Tensor> tensors = mixed_list();
  const auto rows = run(tensors, 100);
  for (size_t row = 0; row < rows.size(); ++row) {
    for (size_t t = 0; t < tensors.size(); ++t) {
      EXPECT_EQ(rows[row][t].device(), GetParam().devices[row]);
      EXPECT_EQ(rows[row][t].layout(), tensors[t].layout());
      EXPECT_THAT(rows[row][t], BitwiseEqual(tensors[t]));
    }
  }
}

TEST_P(BroadcastCoalescedTest, EachCopyHasAVersionCounterOfItsOwn) {
  const auto rows = run(at_home(mixed_list()), 100);
  for (size_t row = 1; row < rows.size(); ++row) {
    for (const at::Tensor& changed : rows[row]) {
      std::vector<uint64_t> versions;
      for (const at::Tensor& tensor : rows[row]) {
        versions.push_back(tensor._version());
      }
      changed.zero_();
      for (size_t t = 0; t < rows[row].size(); ++t) {
        const uint64_t rise = rows[row][t].is_same(changed) ? 1 : 0;
        EXPECT_EQ(rows[row][t]._version(), versions[t] + rise);
      }
    }
  }
}

TEST_P(BroadcastCoalescedTest, AnEmptyTensorSurvivesInPlace) {
  const std::vector<at::Tensor> tensors =
      at_home({at::empty({0}, at::kByte), random_tensor({5}, 1, at::kFloat),
               at::empty({0, 3}, at::kDouble), random_tensor({5}, 2, at::kDouble)});
  for (const auto& row : run(tensors, 256)) {
    for (size_t t = 0; t < tensors.size(); ++t) {
      EXPECT_EQ(row[t].sizes(), tensors[t].sizes());
      EXPECT_THAT(row[t], BitwiseEqual(tensors[t]));
    }
  }
}

TEST_P(BroadcastCoalescedTest, UndefinedEntriesKeepTheirPositions) {
  const std::vector<at::Tensor> tensors =
      at_home({at::Tensor(), random_tensor({2}, 1), at::Tensor(),
               random_sparse({2, 2}, 2, at::kFloat), at::Tensor()});
  for (const auto& row : run(tensors, 100)) {
    ASSERT_EQ(row.size(), 5U);
    EXPECT_FALSE(row[0].defined());
    EXPECT_THAT(row[1], BitwiseEqual(tensors[1]));
    EXPECT_FALSE(row[2].defined());
    EXPECT_THAT(row[3], BitwiseEqual(tensors[3]));
    EXPECT_FALSE(row[4].defined());
  }
}

TEST_P(BroadcastCoalescedTest, ListsWithNothingToSendGiveRowsOfTheSameLength) {
  for (const auto& row : run({}, 100)) {
    EXPECT_THAT(row, IsEmpty());
  }
  for (const auto& row : run({at::Tensor(), at::Tensor()}, 100)) {
    ASSERT_EQ(row.size(), 2U);
    EXPECT_FALSE(row[1].defined());
  }
}

TEST_P(BroadcastCoalescedTest, KeepsStridesOfTensorsWithoutGaps) {
  const std::vector<at::Tensor> tensors = {
      at_home(random_tensor({3, 4}, 1)).t(),
      at_home(random_tensor({2, 3, 4, 5}, 2)).contiguous(at::MemoryFormat::ChannelsLast),
      at_home(random_tensor({}, 3)), at_home(random_tensor({6, 6}, 4)).slice(1, 0, 6, 2),
      at_home(at::ones({1, 3}, at::kDouble)).expand({4, 3})};
  for (const auto& row : run(tensors, 1 << 20)) {
    for (size_t t = 0; t < tensors.size(); ++t) {
      EXPECT_THAT(row[t], BitwiseEqual(tensors[t]));
    }
    EXPECT_EQ(row[0].strides(), tensors[0].strides());
    EXPECT_EQ(row[1].strides(), tensors[1].strides());
    EXPECT_TRUE(row[3].is_same(tensors[3]) || row[3].is_contiguous());
    EXPECT_TRUE(row[4].is_same(tensors[4]) || row[4].is_contiguous());
  }
}

TEST_P(BroadcastCoalescedTest, KeepsTheCoalescedFlag) {
  const at::Tensor coalesced = at_home(random_sparse({3, 3}, 1, at::kFloat)).coalesce();
  const at::Tensor uncoalesced =
      at::sparse_coo_tensor(at_home(at::tensor({1, 1, 0}, at::kLong).view({1, 3})),
                            at_home(random_tensor({3, 2}, 2)), {2, 2});
  ASSERT_FALSE(uncoalesced.is_coalesced());
  for (const auto& row : run({coalesced, uncoalesced}, 100)) {
    EXPECT_TRUE(row[0].is_coalesced());
    EXPECT_FALSE(row[1].is_coalesced());
    EXPECT_EQ(row[1]._nnz(), 3);
    EXPECT_THAT(row[1], BitwiseEqual(uncoalesced));
  }
}

TEST_P(BroadcastCoalescedTest, CopiesNeedNoGradientAndInputsAreUnchanged) {
  const at::Tensor leaf = at_home(random_tensor({3}, 1)).requires_grad_();
  const auto version = leaf._version();
  const auto rows = run({leaf, leaf * 2}, 100);
  EXPECT_TRUE(rows[0][0].requires_grad());
  EXPECT_TRUE(rows[0][1].grad_fn());
  for (size_t row = 1; row < rows.size(); ++row) {
    EXPECT_FALSE(rows[row][0].requires_grad());
    EXPECT_FALSE(rows[row][1].requires_grad());
    EXPECT_FALSE(rows[row][0].is_view());
  }
  EXPECT_EQ(leaf._version(), version);
}

TEST(BroadcastCoalescedRulesTest, SendsOneMessagePerGroupToEachOtherDevice) {
  CopyCollectives engine;
  const auto rows = broadcast_coalesced(mixed_list(), {kMeta, kCpu, kMeta, kCpu}, {100, &engine});
  // Indices join the int64 tensors: dtypes int64, double, float, int32 make the groups.
  std::vector<at::Tensor> parts;
  int64_t bytes = 0;
  for (const at::Tensor& tensor : mixed_list()) {
    for (const at::Tensor& part : tensor.is_sparse()
                                      ? std::vector<at::Tensor>{tensor._indices(), tensor._values()}
                                      : std::vector<at::Tensor>{tensor}) {
      parts.push_back(part);
      bytes += static_cast<int64_t>(part.nbytes());
    }
  }
  const int64_t groups = static_cast<int64_t>(coalesce_groups(parts, 100).size());
  EXPECT_EQ(engine.counters().calls, groups);
  EXPECT_EQ(engine.counters().messages, 2 * groups);
  EXPECT_EQ(engine.counters().bytes, 2 * bytes);
  for (const at::Tensor& tensor : rows[0]) {
    EXPECT_TRUE(tensor.is_meta());
  }
  EXPECT_TRUE(rows[0][1].is_sparse());
}

TEST(BroadcastCoalescedRulesTest, CopiesOnTheTensorsOwnDeviceAreNoMessages) {
  CopyCollectives engine;
  broadcast_coalesced({at::ones({4}), at::ones({4})}, {kCpu, kCpu, kCpu}, {8, &engine});
  EXPECT_EQ(engine.counters().calls, 0);
}

TEST(BroadcastCoalescedRulesTest, WorksInInferenceMode) {
  const c10::InferenceMode inference;
  const at::Tensor tensor = at::ones({3});
  EXPECT_THAT(broadcast_coalesced(tensor, {kCpu, kCpu})[1][0], BitwiseEqual(tensor));
}

TEST(BroadcastCoalescedRulesTest, RejectsWrongArguments) {
  const at::Tensor one = at::ones({2});
  EXPECT_THAT([&] { broadcast_coalesced(one, {}); },
              ThrowsError("[broadcast_coalesced] expected at least one device"));
  EXPECT_THAT(
      [&] {
        broadcast_coalesced({one, at::Tensor(), one.to(kMeta)}, {kCpu, kCpu});
      },
      ThrowsError("expected all tensors on cpu, got meta, at index 2"));
  EXPECT_THAT(
      [&] {
        broadcast_coalesced({one, at::eye(2).to_sparse_csr()}, {kCpu, kCpu});
      },
      ThrowsError("expected a dense or sparse COO tensor"));
  EXPECT_THAT(
      [&] {
        broadcast_coalesced(one, {kCpu, kCpu}, {0, nullptr});
      },
      ThrowsError("expected a positive buffer_bytes"));
}

}  // namespace
}  // namespace lockstep::comm
