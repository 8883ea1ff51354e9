// SPDX-License-Identifier: Apache-2.0
// A communicator of one rank: made, used, closed.
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/matchers.h"
#include "tools/gpu_check/gpu_nccl_fixture.h"

namespace lockstep::gpu_check {
namespace {

using comm::nccl::CommHandle;
using comm::nccl::DataType;
using comm::nccl::NcclApi;
using comm::nccl::NcclCommunicator;
using comm::nccl::Result;
using comm::nccl::StreamHandle;
using ::lockstep::testing::BitwiseEqual;
using ::lockstep::testing::ThrowsError;
using ::testing::ElementsAre;

class GpuCommunicatorTest : public GpuNcclTest {
 protected:
  void broadcast(const at::Tensor& send, const at::Tensor& receive) {
    launch("broadcast", [&](const NcclApi& nccl, CommHandle comm, StreamHandle stream) {
      return nccl.broadcast(send.const_data_ptr(), receive.mutable_data_ptr(),
                            static_cast<size_t>(send.nbytes()), DataType::kUint8, /*root=*/0, comm,
                            stream);
    });
  }
};

TEST_F(GpuCommunicatorTest, KnowsItsRankAndDevice) {
  EXPECT_TRUE(communicator_.is_open());
  EXPECT_THAT(communicator_.devices(), ElementsAre(device()));
  int ranks = -1, rank = -1, index = -1;
  launch("ask", [&](const NcclApi& nccl, CommHandle comm, StreamHandle /*stream*/) {
    EXPECT_EQ(nccl.comm_count(comm, &ranks), Result::kSuccess);
    EXPECT_EQ(nccl.comm_user_rank(comm, &rank), Result::kSuccess);
    EXPECT_EQ(nccl.comm_cu_device(comm, &index), Result::kSuccess);
    return Result::kSuccess;
  });
  EXPECT_EQ(ranks, 1);
  EXPECT_EQ(rank, 0);
  EXPECT_EQ(index, device().index());
  communicator_.check_health("ask");
}

TEST_F(GpuCommunicatorTest, SumsAndBroadcastsInPlace) {
  const at::Tensor x = data({1000}, 1);
  const at::Tensor before = x.cpu();
  sum(x, x);
  EXPECT_THAT(x, BitwiseEqual(before));
  broadcast(x, x);
  EXPECT_THAT(x, BitwiseEqual(before));
}

TEST_F(GpuCommunicatorTest, SumsAndBroadcastsIntoOtherMemory) {
  const at::Tensor x = data({1000}, 1);
  const at::Tensor summed = at::zeros_like(x);
  const at::Tensor copied = at::zeros_like(x);
  sum(x, summed);
  broadcast(x, copied);
  EXPECT_THAT(summed, BitwiseEqual(x));
  EXPECT_THAT(copied, BitwiseEqual(x));
}

TEST_F(GpuCommunicatorTest, ClosesOnceAndTakesNothingAfter) {
  const at::Tensor x = data({4}, 1);
  sum(x, x);
  communicator_.close();
  communicator_.close();
  EXPECT_FALSE(communicator_.is_open());
  EXPECT_THAT([&] { sum(x, x); }, ThrowsError("expected an open communicator"));
}

TEST_F(GpuCommunicatorTest, IsKeptForItsDevicesUntilItIsClosed) {
  const auto first = comm::nccl::communicator_for(nccl(), device(), patience());
  EXPECT_EQ(comm::nccl::communicator_for(nccl(), device(), patience()), first);
  comm::nccl::close_communicators();
  EXPECT_FALSE(first->is_open());
  EXPECT_TRUE(comm::nccl::communicator_for(nccl(), device(), patience())->is_open());
  comm::nccl::close_communicators();
}

TEST_F(GpuCommunicatorTest, TakesADeviceOnce) {
  const std::vector<c10::Device> twice(2, device());
  EXPECT_THAT([&] { NcclCommunicator(nccl(), twice, patience()); },
              ThrowsError("expected distinct devices"));
}

}  // namespace
}  // namespace lockstep::gpu_check
