// SPDX-License-Identifier: Apache-2.0
// How much memory the verbs take on which device.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "comm/broadcast.h"
#include "comm/gather.h"
#include "comm/reduce_add_coalesced.h"
#include "comm/scatter.h"
#include "testing/matchers.h"
#include "testing/random.h"
#include "testing/side_streams.h"
#include "testing/simdev/counters.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::BitwiseEqual;
using ::lockstep::testing::DeviceSet;
using ::lockstep::testing::random_tensor;

using Row = std::vector<at::Tensor>;

class AllocationsTest : public ::testing::TestWithParam<DeviceSet> {
 protected:
  const std::vector<c10::Device>& devices() const { return GetParam().devices; }
  at::Tensor at_home(at::IntArrayRef sizes) const {
    return random_tensor(sizes, 1, at::kFloat).to(devices()[0]);
  }

  // Runs `verb`, which must allocate once on every device but the first, `bytes` there, and
  // `at_home` times on the first.
  void expect_allocations(const std::function<void()>& verb, int64_t at_home, int64_t elsewhere,
                          int64_t bytes) const {
    simdev::reset_counters();
    std::vector<int64_t> before;
    for (const c10::Device device : devices()) {
      before.push_back(simdev::counters(device.index()).live_bytes);
    }
    verb();
    for (size_t i = 0; i < devices().size(); ++i) {
      const simdev::Counters counters = simdev::counters(devices()[i].index());
      EXPECT_EQ(counters.allocations, i == 0 ? at_home : elsewhere) << "device " << i;
      if (i > 0) {
        EXPECT_EQ(counters.peak_bytes - before[i], bytes) << "device " << i;
      }
    }
  }
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS_WITH_STREAMS(AllocationsTest);

constexpr int64_t kElements = 1 << 20;
constexpr int64_t kBytes = 4 * kElements;

TEST_P(AllocationsTest, ALargeTensorIsAllocatedOnceWhereItGoesAndNotAgainWhereItIs) {
  const at::Tensor parameter = at_home({kElements / 4, 4}).t();
  std::vector<Row> rows;
  expect_allocations([&] { rows = broadcast_coalesced(parameter, devices()); }, 0, 1, kBytes);
  for (const Row& row : rows) {
    EXPECT_THAT(row[0], BitwiseEqual(parameter));
    EXPECT_EQ(row[0].strides(), parameter.strides());
  }
  expect_allocations([&] { broadcast(parameter, devices()); }, 0, 1, kBytes);
}

TEST_P(AllocationsTest, CopyingALargeTensorIntoItsCopiesAllocatesNothing) {
  const at::Tensor parameter = at_home({kElements});
  std::vector<Row> rows;
  for (const c10::Device device : devices()) {
    rows.push_back({at::empty({kElements}, device)});
  }
  expect_allocations([&] { broadcast_coalesced_out(parameter, rows); }, 0, 0, 0);
  for (const Row& row : rows) {
    EXPECT_THAT(row[0], BitwiseEqual(parameter));
  }
}

TEST_P(AllocationsTest, ManySmallTensorsArePackedOnceAndArriveInOneBuffer) {
  const Row small(20, at_home({100}));
  std::vector<Row> rows;
  expect_allocations([&] { rows = broadcast_coalesced(small, devices()); }, 1, 1, 8000);
  expect_allocations([&] { broadcast_coalesced_out(small, rows); }, 1, 1, 8000);
}

TEST_P(AllocationsTest, AllRowsAtHomeOfALargeTensorAreCopiesOfIt) {
  const at::Tensor parameter = at_home({kElements});
  const std::vector<c10::Device> twice(3, devices()[0]);
  const auto rows = broadcast_coalesced(parameter, twice);
  EXPECT_TRUE(rows[0][0].is_same(parameter));
  for (size_t i = 1; i < rows.size(); ++i) {
    EXPECT_FALSE(rows[i][0].is_alias_of(parameter));
    EXPECT_FALSE(rows[i][0].is_alias_of(rows[3 - i][0]));
    EXPECT_THAT(rows[i][0], BitwiseEqual(parameter));
  }
}

TEST_P(AllocationsTest, SummingALargeTensorAllocatesOnlyWhereTheSumGoes) {
  std::vector<Row> rows;
  for (const c10::Device device : devices()) {
    rows.push_back({at::ones({kElements}, device)});
  }
  const int64_t sum_and_arrivals = static_cast<int64_t>(devices().size());
  Row sums;
  expect_allocations([&] { sums = reduce_add_coalesced(rows, devices()[0]); }, sum_and_arrivals, 0,
                     0);
  EXPECT_THAT(sums[0], BitwiseEqual(at::full({kElements}, static_cast<float>(rows.size()))));
}

TEST_P(AllocationsTest, ScatterAllocatesThePiecesAndGatherTheWhole) {
  const int64_t k = static_cast<int64_t>(devices().size());
  const at::Tensor batch = at_home({k, 1000});
  std::vector<at::Tensor> pieces;
  expect_allocations([&] { pieces = scatter(batch, devices()); }, 0, 1, 4000);
  expect_allocations([&] { gather(pieces, devices()[0]); }, 1, 0, 0);
}

}  // namespace
}  // namespace lockstep::comm
