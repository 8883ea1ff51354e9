// SPDX-License-Identifier: Apache-2.0
#include "parallel/gradient_sum.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "parallel/worker_pool.h"
#include "testing/matchers.h"
#include "testing/random.h"

namespace lockstep::parallel::internal {
namespace {

using lockstep::testing::BitwiseEqual;
using lockstep::testing::random_tensor;
using torch::autograd::variable_list;

// --- the plan --------------------------------------------------------------------------------

// Every element of every tensor is in exactly one piece; returns how many each part has.
std::vector<int64_t> check_plan(const std::vector<int64_t>& num_elements, size_t num_parts) {
  const SumPlan plan(num_elements, num_parts);
  EXPECT_EQ(plan.num_parts(), num_parts);
  std::vector<std::vector<std::pair<int64_t, int64_t>>> ranges(num_elements.size());
  std::vector<int64_t> load(num_parts, 0);
  for (size_t part = 0; part < num_parts; ++part) {
    for (const SumPlan::Piece& piece : plan.part(part)) {
      ranges.at(piece.tensor).emplace_back(piece.begin, piece.end);
      load[part] += piece.end - piece.begin;
    }
  }
  for (size_t i = 0; i < num_elements.size(); ++i) {
    std::sort(ranges[i].begin(), ranges[i].end());
    int64_t next = 0;
    for (const auto& [begin, end] : ranges[i]) {
      EXPECT_EQ(begin, next) << "tensor " << i;
      next = end;
    }
    EXPECT_EQ(next, num_elements[i]) << "tensor " << i;
    EXPECT_FALSE(ranges[i].empty()) << "tensor " << i;
  }
  return load;
}

TEST(SumPlanTest, CoversEveryElementOnce) {
  const std::vector<std::vector<int64_t>> lists = {
      {},           {0},           {1},       {0, 0, 5}, {100000},         {5, 100000, 7},
      {4096, 4096}, {40960, 1, 0}, {1000000}, {17},      {8191, 8193, 16}, {3, 3, 3, 3, 3}};
  for (const auto& list : lists) {
    for (size_t parts = 1; parts <= 5; ++parts) {
      check_plan(list, parts);
    }
  }
}

TEST(SumPlanTest, GivesEveryPartAboutAsMuch) {
  for (const auto& list : std::vector<std::vector<int64_t>>{{1000000},
                                                            {10, 1000000, 10},
                                                            {300000, 300000, 400000},
                                                            std::vector<int64_t>(1000, 997)}) {
    const int64_t total = std::accumulate(list.begin(), list.end(), int64_t{0});
    for (const size_t parts : {2, 3, 4}) {
      for (const int64_t load : check_plan(list, parts)) {
        EXPECT_NEAR(load, static_cast<double>(total) / parts, 5000.0 * parts);
      }
    }
  }
}

TEST(SumPlanTest, DoesNotDivideSmallTensors) {
  const SumPlan plan({4096, 4096, 4096}, 4);
  for (size_t part = 0; part < 4; ++part) {
    for (const SumPlan::Piece& piece : plan.part(part)) {
      EXPECT_EQ(piece.begin, 0);
      EXPECT_EQ(piece.end, 4096);
    }
  }
}

// --- the sum ---------------------------------------------------------------------------------

using Rows = std::vector<variable_list>;

// Adds up as the backward of replicas does: every thread its part, all at once.
variable_list sum_with(Rows& rows, const SumPlan& plan, size_t num_threads) {
  std::vector<variable_list*> gradients;
  for (variable_list& row : rows) {
    gradients.push_back(&row);
  }
  GradientSum sum(plan, gradients, rows[0].size());
  WorkerPool pool;
  pool.run(static_cast<int64_t>(num_threads), [&](int64_t t) { sum.run(t, num_threads); });
  return sum.take();
}

variable_list sum_of(Rows& rows, size_t num_threads) {
  std::vector<int64_t> num_elements(rows[0].size(), 0);
  for (const variable_list& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      num_elements[i] = row[i].defined() ? row[i].numel() : num_elements[i];
    }
  }
  const SumPlan plan(num_elements, num_threads);
  return sum_with(rows, plan, num_threads);
}

// ((g0 + g1) + g2) + ...; undefined if all are.
variable_list expected_sum(const Rows& rows) {
  variable_list sums(rows[0].size());
  for (size_t i = 0; i < sums.size(); ++i) {
    for (const variable_list& row : rows) {
      if (row[i].defined()) {
        sums[i] = sums[i].defined() ? sums[i] + row[i] : row[i].clone();
      }
    }
  }
  return sums;
}

void expect_equal(const variable_list& actual, const variable_list& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_THAT(actual[i], BitwiseEqual(expected[i])) << "tensor " << i;
  }
}

TEST(GradientSumTest, AddsInReplicaOrderWhateverTheThreads) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (size_t replicas = 2; replicas <= 5; ++replicas) {
      for (size_t threads = 1; threads <= 4; ++threads) {
        Rows rows;
        for (size_t r = 0; r < replicas; ++r) {
          rows.push_back({random_tensor({100, 101}, r, dtype), random_tensor({7}, 10 + r, dtype),
                          random_tensor({}, 20 + r, dtype), random_tensor({0, 3}, 30, dtype)});
        }
        const variable_list expected = expected_sum(rows);
        expect_equal(sum_of(rows, threads), expected);
      }
    }
  }
}

TEST(GradientSumTest, AddsFromTheLeft) {
  const auto value = [](float number) { return at::full({2}, number); };
  Rows rows = {{value(1e8f)}, {value(1.0f)}, {value(-1e8f)}, {value(1.0f)}};
  // (1e8 + 1) is 1e8 in float; any other order gives 2 or 0.
  EXPECT_THAT(sum_of(rows, 2)[0], BitwiseEqual(value(1.0f)));
}

TEST(GradientSumTest, ReplicasWithoutAGradientCountAsZero) {
  const at::Tensor a = random_tensor({9000}, 1);
  const at::Tensor b = random_tensor({9000}, 2);
  Rows rows = {{at::Tensor(), a.clone(), at::Tensor(), a.clone()},
               {at::Tensor(), at::Tensor(), b.clone(), at::Tensor()},
               {at::Tensor(), b.clone(), at::Tensor(), b.clone()}};
  const variable_list sums = sum_of(rows, 3);
  EXPECT_FALSE(sums[0].defined());
  EXPECT_THAT(sums[1], BitwiseEqual(a + b));
  EXPECT_THAT(sums[2], BitwiseEqual(b));
  EXPECT_THAT(sums[3], BitwiseEqual(a + b));
}

TEST(GradientSumTest, UsesMemoryThatNobodyElseHolds) {
  Rows rows = {{random_tensor({50, 50}, 1)}, {random_tensor({50, 50}, 2)}};
  const void* first = rows[0][0].data_ptr();
  const at::Tensor sum = sum_of(rows, 2)[0];
  EXPECT_EQ(sum.data_ptr(), first);
  EXPECT_EQ(sum.use_count(), 1u);
}

TEST(GradientSumTest, UsesTheMemoryOfAViewWhoseBaseNobodyHolds) {
  Rows rows = {{random_tensor({30, 40}, 1).t()}, {random_tensor({30, 40}, 2).t()}};
  const variable_list expected = expected_sum(rows);
  const void* first = rows[0][0].data_ptr();
  const variable_list sums = sum_of(rows, 2);
  EXPECT_EQ(sums[0].data_ptr(), first);
  expect_equal(sums, expected);
}

TEST(GradientSumTest, NeverWritesToMemoryThatSomebodyElseHolds) {
  const at::Tensor held = random_tensor({50, 50}, 1);
  const at::Tensor base = random_tensor({2, 50, 50}, 2);
  const at::Tensor detached = random_tensor({50, 50}, 3);
  const at::Tensor twice = random_tensor({50, 50}, 4);
  const std::vector<at::Tensor> before = {held.clone(), base.clone(), detached.clone(),
                                          twice.clone()};
  // The last two columns are the same tensor, as the gradients of a + b are.
  Rows rows = {{held, base[0], detached.detach(), twice, twice},
               {held, base[1], detached.detach(), twice, twice}};
  const variable_list sums = sum_of(rows, 2);
  EXPECT_THAT(held, BitwiseEqual(before[0]));
  EXPECT_THAT(base, BitwiseEqual(before[1]));
  EXPECT_THAT(detached, BitwiseEqual(before[2]));
  EXPECT_THAT(twice, BitwiseEqual(before[3]));
  EXPECT_THAT(sums[0], BitwiseEqual(before[0] + before[0]));
  EXPECT_THAT(sums[1], BitwiseEqual(before[1][0] + before[1][1]));
  EXPECT_THAT(sums[3], BitwiseEqual(before[3] + before[3]));
  EXPECT_THAT(sums[4], BitwiseEqual(before[3] + before[3]));
}

TEST(GradientSumTest, UsesALaterReplicasMemoryIfTheFirstIsHeld) {
  const at::Tensor held = random_tensor({6000}, 1);
  Rows rows = {{held}, {random_tensor({6000}, 2)}, {random_tensor({6000}, 3)}};
  const variable_list expected = expected_sum(rows);
  const void* second = rows[1][0].data_ptr();
  const variable_list sums = sum_of(rows, 3);
  EXPECT_EQ(sums[0].data_ptr(), second);
  expect_equal(sums, expected);
}

TEST(GradientSumTest, AddsEveryOtherKindOfTensor) {
  const auto sparse = [](int64_t row, double value) {
    return at::sparse_coo_tensor(at::full({1, 1}, row, at::kLong),
                                 at::full({1, 2}, value, at::kDouble), {5, 2});
  };
  Rows rows = {{random_tensor({6}, 1, at::kHalf), random_tensor({6}, 1, at::kBFloat16),
                random_tensor({6}, 1, at::kComplexDouble), sparse(1, 2.0),
                at::ones({1}, at::kDouble).expand({9, 3}), random_tensor({4, 6}, 5)},
               {random_tensor({6}, 2, at::kHalf), random_tensor({6}, 2, at::kBFloat16),
                random_tensor({6}, 2, at::kComplexDouble), sparse(3, 4.0),
                at::ones({1}, at::kDouble).expand({9, 3}), random_tensor({6, 4}, 6).t()}};
  const variable_list expected = expected_sum(rows);
  const variable_list sums = sum_of(rows, 2);
  EXPECT_TRUE(sums[3].is_sparse());
  expect_equal(sums, expected);
}

TEST(GradientSumTest, DividesALargeTensorBetweenThreads) {
  constexpr int64_t kElements = 1 << 20;
  const SumPlan plan({kElements}, 4);
  for (size_t part = 0; part < 4; ++part) {
    EXPECT_EQ(plan.part(part).size(), 1u);
  }
  Rows rows = {{random_tensor({kElements}, 1, at::kFloat)},
               {random_tensor({kElements}, 2, at::kFloat)},
               {random_tensor({kElements}, 3, at::kFloat)}};
  const variable_list expected = expected_sum(rows);
  expect_equal(sum_with(rows, plan, 4), expected);
}

TEST(GradientSumTest, FewerThreadsThanPartsDoAllParts) {
  // Fewer chunks than devices: the plan is made once, for all devices.
  const SumPlan plan({70000, 3}, 4);
  for (size_t threads = 1; threads <= 4; ++threads) {
    Rows rows = {{random_tensor({70000}, 1), random_tensor({3}, 2)},
                 {random_tensor({70000}, 3), random_tensor({3}, 4)}};
    const variable_list expected = expected_sum(rows);
    expect_equal(sum_with(rows, plan, threads), expected);
  }
}

}  // namespace
}  // namespace lockstep::parallel::internal
