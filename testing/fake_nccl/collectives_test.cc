// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "testing/fake_nccl/rank_set.h"
#include "testing/fake_nccl/simulated_nccl.h"
#include "testing/matchers.h"
#include "testing/random.h"

namespace lockstep::fake_nccl {
namespace {

using comm::nccl::ScalarResidence;
using lockstep::testing::AllClose;
using lockstep::testing::BitwiseEqual;
using lockstep::testing::random_tensor;

const bool kDevicesInUse = use_in_tests();

constexpr int kRanks = 4;
constexpr int64_t kCount = 38;

at::Tensor value(int rank, int64_t count, at::ScalarType dtype) {
  const at::Tensor floats = random_tensor({count}, 7 + rank, at::kFloat);
  return at::isIntegralType(dtype, false) ? (floats * 40).to(dtype) : floats.to(dtype);
}

std::vector<at::Tensor> values(int64_t count, at::ScalarType dtype) {
  return on_devices(kRanks, [&](int rank) { return value(rank, count, dtype); });
}

std::vector<at::Tensor> zeros(int64_t count, at::ScalarType dtype) {
  return on_devices(kRanks, [&](int) { return at::zeros({count}, dtype); });
}

// combine(combine(combine(a, b), c), d) on the host, from the first-th term round to it.
template <class Combine>
at::Tensor fold(const std::vector<at::Tensor>& terms, const Combine& combine, size_t first = 0) {
  at::Tensor total = terms[first % terms.size()].cpu();
  for (size_t i = 1; i < terms.size(); ++i) {
    total = combine(total, terms[(first + i) % terms.size()].cpu());
  }
  return total;
}

at::Tensor sum(const std::vector<at::Tensor>& terms, size_t first = 0) {
  return fold(
      terms, [](const at::Tensor& a, const at::Tensor& b) { return a + b; }, first);
}

std::vector<at::Tensor> parts(const std::vector<at::Tensor>& tensors, int64_t begin, int64_t end) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& tensor : tensors) {
    all.push_back(tensor.slice(0, begin, end));
  }
  return all;
}

class CollectivesTest : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  const RankSet ranks_{kRanks};
};

TEST_P(CollectivesTest, AllReduceSumsInRankOrder) {
  const auto sent = values(kCount, GetParam()), got = zeros(kCount, GetParam());
  EXPECT_EQ(
      grouped(kRanks, [&](int rank) { return all_reduce(ranks_, rank, sent[rank], got[rank]); }),
      Result::kSuccess);
  for (const at::Tensor& each : got) {
    EXPECT_THAT(each.cpu(), BitwiseEqual(sum(sent)));
  }
}

TEST_P(CollectivesTest, ReduceWritesAtTheRootOnly) {
  const auto sent = values(kCount, GetParam()), got = zeros(kCount, GetParam());
  EXPECT_EQ(
      grouped(kRanks, [&](int rank) { return reduce(ranks_, rank, sent[rank], got[rank], 2); }),
      Result::kSuccess);
  EXPECT_THAT(got[2].cpu(), BitwiseEqual(sum(sent)));
  EXPECT_THAT(got[1].cpu(), BitwiseEqual(at::zeros({kCount}, GetParam())));
}

TEST_P(CollectivesTest, BroadcastTakesTheRootsValues) {
  const auto sent = values(kCount, GetParam()), got = zeros(kCount, GetParam());
  EXPECT_EQ(
      grouped(kRanks, [&](int rank) { return broadcast(ranks_, rank, sent[rank], got[rank], 1); }),
      Result::kSuccess);
  for (const at::Tensor& each : got) {
    EXPECT_THAT(each.cpu(), BitwiseEqual(sent[1].cpu()));
  }
}

TEST_P(CollectivesTest, AllGatherJoinsInRankOrder) {
  const auto sent = values(kCount, GetParam()), got = zeros(kRanks * kCount, GetParam());
  EXPECT_EQ(
      grouped(kRanks, [&](int rank) { return all_gather(ranks_, rank, sent[rank], got[rank]); }),
      Result::kSuccess);
  const at::Tensor expected = at::cat({sent[0].cpu(), sent[1].cpu(), sent[2].cpu(), sent[3].cpu()});
  for (const at::Tensor& each : got) {
    EXPECT_THAT(each.cpu(), BitwiseEqual(expected));
  }
}

TEST_P(CollectivesTest, ReduceScatterGivesEachRankItsPart) {
  const auto sent = values(kRanks * kCount, GetParam()), got = zeros(kCount, GetParam());
  EXPECT_EQ(grouped(kRanks,
                    [&](int rank) { return reduce_scatter(ranks_, rank, sent[rank], got[rank]); }),
            Result::kSuccess);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_THAT(got[rank].cpu(),
                BitwiseEqual(sum(sent).slice(0, rank * kCount, (rank + 1) * kCount)));
  }
}

TEST_P(CollectivesTest, WorkInPlace) {
  const auto sums = values(kCount, GetParam()), gathered = values(kRanks * kCount, GetParam());
  const auto scattered = values(kRanks * kCount, GetParam());
  const auto rooted = values(kCount, GetParam()), spread = values(kCount, GetParam());
  const at::Tensor sum_before = sum(sums), rooted_before = sum(rooted),
                   scattered_before = sum(scattered), spread_before = spread[3].cpu();
  std::vector<at::Tensor> own;
  for (int rank = 0; rank < kRanks; ++rank) {
    own.push_back(gathered[rank].slice(0, rank * kCount, (rank + 1) * kCount).cpu());
  }
  EXPECT_EQ(grouped(kRanks,
                    [&](int rank) {
                      const auto part = [&](const std::vector<at::Tensor>& of) {
                        return of[rank].slice(0, rank * kCount, (rank + 1) * kCount);
                      };
                      all_reduce(ranks_, rank, sums[rank], sums[rank]);
                      reduce(ranks_, rank, rooted[rank], rooted[rank], 3);
                      broadcast(ranks_, rank, spread[rank], spread[rank], 3);
                      all_gather(ranks_, rank, part(gathered), gathered[rank]);
                      return reduce_scatter(ranks_, rank, scattered[rank], part(scattered));
                    }),
            Result::kSuccess);
  EXPECT_THAT(sums[1].cpu(), BitwiseEqual(sum_before));
  EXPECT_THAT(rooted[3].cpu(), BitwiseEqual(rooted_before));
  EXPECT_THAT(spread[0].cpu(), BitwiseEqual(spread_before));
  EXPECT_THAT(gathered[2].cpu(), BitwiseEqual(at::cat(own)));
  EXPECT_THAT(scattered[1].slice(0, kCount, 2 * kCount).cpu(),
              BitwiseEqual(scattered_before.slice(0, kCount, 2 * kCount)));
}

TEST_P(CollectivesTest, AveragesDivideTheSum) {
  const auto sent = values(kCount, GetParam()), got = zeros(kCount, GetParam());
  grouped(kRanks,
          [&](int rank) { return all_reduce(ranks_, rank, sent[rank], got[rank], RedOp::kAvg); });
  const at::Tensor expected = at::isIntegralType(GetParam(), false)
                                  ? at::div(sum(sent), kRanks, "trunc")
                                  : sum(sent) / kRanks;
  EXPECT_THAT(got[0].cpu(), BitwiseEqual(expected));
}

TEST_P(CollectivesTest, FoldByProductMaximumAndMinimum) {
  const auto sent = values(kCount, GetParam());
  const auto products = zeros(kCount, GetParam()), most = zeros(kCount, GetParam()),
             least = zeros(kCount, GetParam());
  grouped(kRanks, [&](int rank) {
    all_reduce(ranks_, rank, sent[rank], products[rank], RedOp::kProd);
    all_reduce(ranks_, rank, sent[rank], most[rank], RedOp::kMax);
    return all_reduce(ranks_, rank, sent[rank], least[rank], RedOp::kMin);
  });
  using Pair = const at::Tensor&;
  EXPECT_THAT(products[1].cpu(), BitwiseEqual(fold(sent, [](Pair a, Pair b) { return a * b; })));
  EXPECT_THAT(most[1].cpu(),
              BitwiseEqual(fold(sent, [](Pair a, Pair b) { return at::maximum(a, b); })));
  EXPECT_THAT(least[1].cpu(),
              BitwiseEqual(fold(sent, [](Pair a, Pair b) { return at::minimum(a, b); })));
}

TEST_P(CollectivesTest, PreMulSumScalesEachRanksValuesFirst) {
  const auto sent = values(kCount, GetParam()), got = zeros(kCount, GetParam());
  const auto factors = on_devices(
      kRanks, [&](int rank) { return at::full({1}, rank + 2, at::TensorOptions(GetParam())); });
  const at::Tensor host_factor = factors[0].cpu();
  std::vector<RedOp> ops(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    // Rank 0's lies on the host, the others' on their devices.
    const at::Tensor& factor = rank == 0 ? host_factor : factors[rank];
    const auto residence = rank == 0 ? ScalarResidence::kHostImmediate : ScalarResidence::kDevice;
    ASSERT_EQ(simulated_nccl().red_op_create_pre_mul_sum(&ops[rank], factor.data_ptr(),
                                                         dtype_of(factor), residence, ranks_[rank]),
              Result::kSuccess);
  }
  grouped(kRanks,
          [&](int rank) { return all_reduce(ranks_, rank, sent[rank], got[rank], ops[rank]); });
  std::vector<at::Tensor> scaled;
  for (int rank = 0; rank < kRanks; ++rank) {
    scaled.push_back(sent[rank].cpu() * factors[rank].cpu());
    EXPECT_EQ(simulated_nccl().red_op_destroy(ops[rank], ranks_[rank]), Result::kSuccess);
  }
  EXPECT_THAT(got[3].cpu(), BitwiseEqual(sum(scaled)));
}

TEST_P(CollectivesTest, InRingOrderEachPartEndsAtItsRank) {
  set_ring_order(true);
  const auto sent = values(kCount, GetParam()), got = zeros(kCount, GetParam());
  grouped(kRanks, [&](int rank) { return all_reduce(ranks_, rank, sent[rank], got[rank]); });
  const int64_t part = (kCount + kRanks - 1) / kRanks;
  for (int rank = 0; rank < kRanks; ++rank) {
    const int64_t begin = rank * part, end = std::min(begin + part, kCount);
    EXPECT_THAT(got[0].slice(0, begin, end).cpu(),
                BitwiseEqual(sum(parts(sent, begin, end), rank + 1)));
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, CollectivesTest,
                         ::testing::Values(at::kChar, at::kByte, at::kInt, at::kLong, at::kHalf,
                                           at::kFloat, at::kDouble, at::kBFloat16),
                         [](const auto& tested) { return c10::toString(tested.param); });

TEST(RingOrderTest, GivesOtherBitsThanRankOrder) {
  const RankSet ranks(kRanks);
  const auto sent = values(4096, at::kFloat);
  const auto in_rank_order = zeros(4096, at::kFloat), in_a_ring = zeros(4096, at::kFloat);
  grouped(kRanks,
          [&](int rank) { return all_reduce(ranks, rank, sent[rank], in_rank_order[rank]); });
  set_ring_order(true);
  grouped(kRanks, [&](int rank) { return all_reduce(ranks, rank, sent[rank], in_a_ring[rank]); });
  EXPECT_FALSE(at::equal(in_rank_order[0].cpu(), in_a_ring[0].cpu()));
  EXPECT_THAT(in_a_ring[0].cpu(), AllClose(in_rank_order[0].cpu(), {1e-5, 1e-6}));
}

TEST(EmptyCallsTest, DoNothingAndNeedNoMemory) {
  const RankSet ranks(2);
  EXPECT_EQ(grouped(2,
                    [&](int rank) {
                      return simulated_nccl().all_reduce(nullptr, nullptr, 0, DataType::kFloat32,
                                                         RedOp::kSum, ranks[rank], stream(rank));
                    }),
            Result::kSuccess);
  EXPECT_EQ(counters().calls, 2);
  EXPECT_EQ(counters().kernels, 0);
}

TEST(CountersTest, AreExact) {
  const RankSet ranks(kRanks);
  const auto sent = values(8, at::kFloat), got = values(8, at::kFloat),
             others = values(8 * kRanks, at::kFloat);
  grouped(kRanks, [&](int rank) {
    broadcast(ranks, rank, sent[rank], got[rank], 0);
    return all_gather(ranks, rank, sent[rank], others[rank]);
  });
  grouped(kRanks, [&](int rank) { return all_reduce(ranks, rank, sent[rank], got[rank]); });
  EXPECT_EQ(counters().calls, 3 * kRanks);
  EXPECT_EQ(counters().kernels, 2 * kRanks);
  EXPECT_EQ(counters().groups, 2);
  constexpr int kBytes = 8 * 4;
  EXPECT_EQ(counters().bytes_sent, (kRanks - 1) * kBytes                 // broadcast
                                       + kRanks * (kRanks - 1) * kBytes  // all_gather
                                       + 2 * (kRanks - 1) * kBytes);     // all_reduce
  EXPECT_EQ(counters().comms_made, kRanks);
  EXPECT_EQ(counters().comms_live, kRanks);
}

}  // namespace
}  // namespace lockstep::fake_nccl
