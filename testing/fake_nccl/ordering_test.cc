// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "testing/fake_nccl/rank_set.h"
#include "testing/fake_nccl/simulated_nccl.h"
#include "testing/simdev/checker.h"
#include "testing/simdev/native_launch.h"

namespace lockstep::fake_nccl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const bool kDevicesInUse = use_in_tests();

constexpr int kRanks = 3;

c10::impl::VirtualGuardImpl guard() {
  return c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1);
}

c10::Stream side_stream(int device) { return guard().getNewStream(simdev::device(device)); }

// Each device's current stream writes a mark of its own; later it shows who comes after whom.
class OrderingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const at::Tensor& mark : marks_) {
      mark.fill_(1);
    }
  }
  // Whether what the stream is given now comes after the mark of that rank.
  bool comes_after(const c10::Stream& later, int rank) {
    try {
      simdev::native_launch(later, "look",
                            {{marks_[rank].data_ptr(), marks_[rank].nbytes(), false}});
      return true;
    } catch (const simdev::RaceError&) {
      simdev::take_reports();
      return false;
    }
  }
  bool comes_after(int rank, int other) {
    return comes_after(guard().getStream(simdev::device(rank)), other);
  }
  void expect_all_after_all(const std::function<Result(int rank)>& call) {
    EXPECT_FALSE(comes_after(0, 2));
    EXPECT_FALSE(comes_after(2, 0));
    EXPECT_EQ(grouped(kRanks, call), Result::kSuccess);
    for (int rank = 0; rank < kRanks; ++rank) {
      for (int other = 0; other < kRanks; ++other) {
        EXPECT_TRUE(comes_after(rank, other)) << rank << " after " << other;
      }
    }
  }

  const RankSet ranks_{kRanks};
  const std::vector<at::Tensor> marks_ = on_devices(kRanks, [](int) { return at::zeros({4}); });
  const std::vector<at::Tensor> memory_ =
      on_devices(kRanks, [](int) { return at::ones({4 * kRanks}); });
  const std::vector<at::Tensor> parts_ = on_devices(kRanks, [](int) { return at::ones({4}); });
};

TEST_F(OrderingTest, BroadcastComesAfterItsRoot) {
  grouped(kRanks,
          [&](int rank) { return broadcast(ranks_, rank, memory_[rank], memory_[rank], 0); });
  EXPECT_TRUE(comes_after(1, 0));
  EXPECT_TRUE(comes_after(2, 0));
  EXPECT_FALSE(comes_after(0, 1));
  EXPECT_FALSE(comes_after(2, 1));
}

TEST_F(OrderingTest, ReduceComesAfterAllAtItsRoot) {
  grouped(kRanks, [&](int rank) { return reduce(ranks_, rank, memory_[rank], memory_[rank], 1); });
  EXPECT_TRUE(comes_after(1, 0));
  EXPECT_TRUE(comes_after(1, 2));
  EXPECT_FALSE(comes_after(0, 1));
  EXPECT_FALSE(comes_after(2, 0));
}

TEST_F(OrderingTest, AllReduceComesAfterAll) {
  expect_all_after_all(
      [&](int rank) { return all_reduce(ranks_, rank, memory_[rank], memory_[rank]); });
}

TEST_F(OrderingTest, AllGatherComesAfterAll) {
  expect_all_after_all(
      [&](int rank) { return all_gather(ranks_, rank, parts_[rank], memory_[rank]); });
}

TEST_F(OrderingTest, ReduceScatterComesAfterAll) {
  expect_all_after_all(
      [&](int rank) { return reduce_scatter(ranks_, rank, memory_[rank], parts_[rank]); });
}

TEST_F(OrderingTest, TheStreamsOfAGroupJoin) {
  const c10::Stream aside = side_stream(0);
  const at::Tensor more = at::ones({4}, simdev::device(0));
  simdev::native_order(guard().getStream(simdev::device(0)), aside);
  const RankSet alone(1);
  marks_[0].fill_(2);
  EXPECT_FALSE(comes_after(aside, 0));
  // The group's one kernel comes after both streams: what is ready on either is no race.
  simdev::native_launch(aside, "write", {{more.data_ptr(), more.nbytes(), true}});
  simulated_nccl().group_start();
  all_reduce(alone, 0, memory_[0], memory_[0]);
  simulated_nccl().all_reduce(more.data_ptr(), more.data_ptr(), 4, DataType::kFloat32, RedOp::kSum,
                              alone[0], aside.native_handle());
  simulated_nccl().group_end();
  EXPECT_TRUE(comes_after(aside, 0));
}

TEST_F(OrderingTest, MemoryThatIsNotReadyIsARace) {
  const c10::Stream aside = side_stream(0);
  const RankSet alone(1);
  memory_[0].fill_(2);
  EXPECT_EQ(
      simulated_nccl().all_reduce(memory_[0].data_ptr(), memory_[0].data_ptr(), 4,
                                  DataType::kFloat32, RedOp::kSum, alone[0], aside.native_handle()),
      Result::kSuccess);
  EXPECT_THAT(simdev::take_reports(),
              ElementsAre(AllOf(HasSubstr("'nccl all_reduce'"), HasSubstr("'aten::fill_.Scalar'"),
                                HasSubstr("nothing orders it after"))));
}

TEST_F(OrderingTest, MemoryThatIsReusedTooEarlyIsARace) {
  const c10::Stream aside = side_stream(0);
  const RankSet alone(1);
  simdev::native_order(guard().getStream(simdev::device(0)), aside);
  simulated_nccl().all_reduce(memory_[0].data_ptr(), parts_[0].data_ptr(), 4, DataType::kFloat32,
                              RedOp::kSum, alone[0], aside.native_handle());
  EXPECT_THROW(memory_[0].fill_(3), simdev::RaceError);
  EXPECT_THAT(simdev::take_reports(), ElementsAre(HasSubstr("'nccl all_reduce'")));
}

// A call of a non-blocking communicator is on its stream only when it is not in progress any more.
class EventTest : public OrderingTest {
 protected:
  // Reads the result on another stream, which waits for an event.
  void read_result(bool wait_before_the_event) {
    const RankSet alone(1, Mode::kNonBlocking);
    const c10::Stream aside = side_stream(0);
    EXPECT_EQ(all_reduce(alone, 0, memory_[0], memory_[0]), Result::kInProgress);
    if (wait_before_the_event) {
      EXPECT_EQ(wait(alone[0]), Result::kSuccess);
    }
    c10::Event event(c10::DeviceType::PrivateUse1);
    event.record(guard().getStream(simdev::device(0)));
    event.block(aside);
    EXPECT_EQ(wait(alone[0]), Result::kSuccess);
    simdev::native_launch(aside, "read", {{memory_[0].data_ptr(), memory_[0].nbytes(), false}});
  }
};

TEST_F(EventTest, CoversACallThatIsDone) { read_result(true); }

TEST_F(EventTest, DoesNotCoverACallInProgress) {
  EXPECT_THROW(read_result(false), simdev::RaceError);
  EXPECT_THAT(simdev::take_reports(),
              ElementsAre(AllOf(HasSubstr("'read'"), HasSubstr("'nccl all_reduce'"))));
}

}  // namespace
}  // namespace lockstep::fake_nccl
