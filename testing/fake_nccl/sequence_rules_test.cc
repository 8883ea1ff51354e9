// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "testing/fake_nccl/rank_set.h"
#include "testing/fake_nccl/simulated_nccl.h"

namespace lockstep::fake_nccl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const bool kDevicesInUse = use_in_tests();

// The ranks call one collective that they agree on, and then others. A rule that is broken shows
// as kInvalidUsage, and breaks the communicator.
class SequenceRulesTest : public ::testing::Test {
 protected:
  void SetUp() override { EXPECT_EQ(call(agreed_, agreed_), Result::kSuccess); }

  using Call = std::function<Result(int rank)>;
  Result call(const Call& of_rank_0, const Call& of_rank_1) {
    return grouped(2, [&](int rank) { return rank == 0 ? of_rank_0(rank) : of_rank_1(rank); });
  }
  // What rank 1 does is found to differ.
  void expect_difference(const Call& of_rank_0, const Call& of_rank_1, const char* expected,
                         const char* got) {
    EXPECT_EQ(call(of_rank_0, of_rank_1), Result::kInvalidUsage);
    EXPECT_THAT(take_reports(),
                ElementsAre(AllOf(HasSubstr("rank 1 (device 1)"), HasSubstr("operation 1"),
                                  HasSubstr(std::string("expected ") + expected +
                                            ", as rank 0 called, got " + got))));
    EXPECT_EQ(call(agreed_, agreed_), Result::kInvalidUsage);
    EXPECT_THAT(take_reports(), IsEmpty());
  }

  const RankSet ranks_{2};
  const std::vector<at::Tensor> memory_ = on_devices(2, [](int) { return at::ones({8}); });
  const Call agreed_ = [&](int rank) {
    return all_reduce(ranks_, rank, memory_[rank], memory_[rank]);
  };
};

TEST_F(SequenceRulesTest, KindsAgree) {
  expect_difference(
      agreed_, [&](int rank) { return reduce(ranks_, rank, memory_[1], memory_[1], 0); },
      "all_reduce of 8 float32 with sum", "reduce of 8 float32 with sum to root 0");
}

TEST_F(SequenceRulesTest, CountsAgree) {
  expect_difference(
      agreed_,
      [&](int rank) {
        const at::Tensor part = memory_[1].slice(0, 0, 7);
        return all_reduce(ranks_, rank, part, part);
      },
      "all_reduce of 8 float32 with sum", "all_reduce of 7 float32 with sum");
}

TEST_F(SequenceRulesTest, DtypesAgree) {
  const at::Tensor other = at::ones({8}, simdev::device(1)).to(at::kInt);
  expect_difference(
      agreed_, [&](int rank) { return all_reduce(ranks_, rank, other, other); },
      "all_reduce of 8 float32 with sum", "all_reduce of 8 int32 with sum");
}

TEST_F(SequenceRulesTest, ReductionsAgree) {
  expect_difference(
      agreed_,
      [&](int rank) { return all_reduce(ranks_, rank, memory_[1], memory_[1], RedOp::kMax); },
      "all_reduce of 8 float32 with sum", "all_reduce of 8 float32 with max");
}

TEST_F(SequenceRulesTest, RootsAgree) {
  const auto to_root = [&](int root) {
    return [this, root](int rank) {
      return broadcast(ranks_, rank, memory_[rank], memory_[rank], root);
    };
  };
  expect_difference(to_root(0), to_root(1), "broadcast of 8 float32 from root 0",
                    "broadcast of 8 float32 from root 1");
}

TEST_F(SequenceRulesTest, NumbersOfCallsInAGroupAgree) {
  const std::vector<at::Tensor> other = on_devices(2, [](int) { return at::ones({8}); });
  expect_difference(
      [&](int rank) {
        agreed_(rank);
        return all_reduce(ranks_, rank, other[rank], other[rank]);
      },
      agreed_, "2 operations in one group", "1");
}

TEST_F(SequenceRulesTest, OrderIsThatOfTheCalls) {
  const std::vector<at::Tensor> other = on_devices(2, [](int) { return at::ones({8}); });
  const auto both = [&](bool swapped) {
    return [&, swapped](int rank) {
      const auto reduce_other = [&] { return reduce(ranks_, rank, other[rank], other[rank], 0); };
      if (swapped) {
        reduce_other();
      }
      const Result result = agreed_(rank);
      return swapped ? result : reduce_other();
    };
  };
  EXPECT_EQ(call(both(true), both(true)), Result::kSuccess);
  EXPECT_EQ(call(both(false), both(true)), Result::kInvalidUsage);
  EXPECT_THAT(take_reports(), ElementsAre(AllOf(HasSubstr("operation 3: expected all_reduce"),
                                                HasSubstr("as rank 0 called, got reduce"))));
}

TEST(DestroyedPeerTest, IsNotWaitedFor) {
  RankSet ranks(2, Mode::kNonBlocking);
  const at::Tensor memory = at::ones({4}, simdev::device(0));
  simulated_nccl().comm_destroy(ranks.release(1));
  EXPECT_EQ(all_reduce(ranks, 0, memory, memory), Result::kInProgress);
  EXPECT_EQ(wait(ranks[0]), Result::kInvalidUsage);
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("all_reduce of 4 float32 with sum waits for "
                                                    "rank 1, which was destroyed")));
}

// Two communicators over devices 0 and 1, called by two threads that do not wait in between.
class CrossingTest : public ::testing::Test {
 protected:
  Result call(const RankSet& ranks, int rank, const std::vector<at::Tensor>& memory) {
    return all_reduce(ranks, rank, memory[rank], memory[rank]);
  }
  void expect_all_done() {
    for (const RankSet* ranks : {&a_, &b_}) {
      for (int rank = 0; rank < 2; ++rank) {
        EXPECT_EQ(wait((*ranks)[rank]), Result::kSuccess);
      }
    }
  }

  const RankSet a_{2, Mode::kNonBlocking}, b_{2, Mode::kNonBlocking};
  const std::vector<at::Tensor> of_a_ = on_devices(2, [](int) { return at::ones({4}); });
  const std::vector<at::Tensor> of_b_ = on_devices(2, [](int) { return at::ones({4}); });
};

TEST_F(CrossingTest, OneOrderOnAllDevicesIsFine) {
  set_polls(0);
  call(a_, 0, of_a_);
  call(b_, 0, of_b_);
  std::thread([&] {
    call(a_, 1, of_a_);
    call(b_, 1, of_b_);
  }).join();
  expect_all_done();
}

TEST_F(CrossingTest, TwoOrdersMayWaitForEachOther) {
  set_polls(0);
  call(a_, 0, of_a_);
  call(b_, 0, of_b_);
  std::thread([&] {
    call(b_, 1, of_b_);
    call(a_, 1, of_a_);
  }).join();
  expect_all_done();
  EXPECT_THAT(take_reports(), ElementsAre(AllOf(HasSubstr("operation 0 of communicator"),
                                                HasSubstr("is called before"),
                                                HasSubstr("on device 0, and after "
                                                          "it on device 1"))));
}

TEST_F(CrossingTest, OneGroupHasNoOrder) {
  set_polls(0);
  const auto both = [&](int rank, bool a_first) {
    simulated_nccl().group_start();
    a_first ? call(a_, rank, of_a_) : call(b_, rank, of_b_);
    a_first ? call(b_, rank, of_b_) : call(a_, rank, of_a_);
    simulated_nccl().group_end();
  };
  both(0, true);
  std::thread([&] { both(1, false); }).join();
  expect_all_done();
}

TEST(DeadlockTest, SaysWhereEachRankStands) {
  const RankSet ranks(3);
  set_deadline(std::chrono::milliseconds(20));
  const auto memory = on_devices(3, [](int) { return at::ones({4}); });
  grouped(3, [&](int rank) { return all_reduce(ranks, rank, memory[rank], memory[rank]); });
  EXPECT_EQ(
      grouped(2, [&](int rank) { return all_reduce(ranks, rank, memory[rank], memory[rank]); }),
      Result::kInternalError);
  EXPECT_THAT(
      take_reports(),
      ElementsAre(AllOf(HasSubstr("deadlock in communicator"), HasSubstr("after 20 ms"),
                        HasSubstr("rank 0 (device 0) waits in operation 1, all_reduce of 4 "
                                  "float32 with sum; rank 1 (device 1) waits in operation 1"),
                        HasSubstr("rank 2 (device 2) has called nothing since operation 0"),
                        HasSubstr("put their calls into one group"))));
}

TEST(DeadlockTest, IsFoundWhenANonBlockingCallIsAskedAbout) {
  const RankSet ranks(2, Mode::kNonBlocking);
  set_deadline(std::chrono::milliseconds(20));
  const at::Tensor memory = at::ones({4}, simdev::device(1));
  EXPECT_EQ(all_reduce(ranks, 1, memory, memory), Result::kInProgress);
  EXPECT_EQ(wait(ranks[1]), Result::kInternalError);
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("rank 0 (device 0) has called nothing")));
}

TEST(DeadlockTest, IsFoundInInit) {
  set_deadline(std::chrono::milliseconds(20));
  comm::nccl::UniqueId id = {};
  simulated_nccl().get_unique_id(&id);
  CommHandle comm = nullptr;
  EXPECT_EQ(simulated_nccl().comm_init_rank_config(&comm, 2, id, 0, nullptr),
            Result::kInternalError);
  EXPECT_THAT(take_reports(),
              ElementsAre(HasSubstr("rank 0 (device 0) waits in init; rank 1 has not called "
                                    "init")));
  simulated_nccl().comm_abort(comm);
}

}  // namespace
}  // namespace lockstep::fake_nccl
