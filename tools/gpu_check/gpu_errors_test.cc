// SPDX-License-Identifier: Apache-2.0
// Communicators that are given up, and calls that NCCL refuses.
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/errors.h"
#include "testing/matchers.h"
#include "tools/gpu_check/gpu_nccl_fixture.h"

namespace lockstep::gpu_check {
namespace {

using comm::nccl::CommHandle;
using comm::nccl::DataType;
using comm::nccl::NcclApi;
using comm::nccl::Result;
using comm::nccl::StreamHandle;
using ::lockstep::testing::BitwiseEqual;
using ::lockstep::testing::ThrowsError;
using ::testing::HasSubstr;

class GpuErrorsTest : public GpuNcclTest {
 protected:
  // NCCL has one rank here, number 0.
  void broadcast_from_rank_seven(const at::Tensor& x) {
    launch("broadcast", [&](const NcclApi& nccl, CommHandle comm, StreamHandle stream) {
      return nccl.broadcast(x.const_data_ptr(), x.mutable_data_ptr(),
                            static_cast<size_t>(x.nbytes()), DataType::kUint8, /*root=*/7, comm,
                            stream);
    });
  }
};

TEST_F(GpuErrorsTest, AnAbortedCommunicatorSaysSoAndTheNextOneWorks) {
  const at::Tensor x = data({1 << 22}, 1);
  const at::Tensor lost = at::zeros_like(x);
  sum(x, lost);
  communicator_.abort();
  EXPECT_FALSE(communicator_.is_open());
  EXPECT_THAT([&] { sum(x, lost); }, ThrowsError("was aborted: abort() was called"));
  EXPECT_THROW(sum(x, lost), comm::NcclError);

  const auto next = comm::nccl::communicator_for(nccl(), device(), patience());
  const at::Tensor received = at::zeros_like(x);
  const StreamHandle stream = current_stream().native_handle();
  next->launch("sum", [&](const NcclApi& nccl, CommHandle comm, int /*rank*/) {
    return all_reduce(nccl, x, received, comm, stream);
  });
  EXPECT_THAT(received, BitwiseEqual(x));
  comm::nccl::close_communicators();
}

TEST_F(GpuErrorsTest, ACallThatNcclRefusesIsATypedErrorWithRankAndDevice) {
  const at::Tensor x = data({16}, 1);
  try {
    broadcast_from_rank_seven(x);
    FAIL() << "nothing was thrown";
  } catch (const comm::NcclError& error) {
    EXPECT_EQ(error.rank(), 0);
    EXPECT_EQ(error.device(), device());
    EXPECT_FALSE(error.recoverable());
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("[broadcast] "));
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("invalid argument"));
  }
  forget_broken_rules();
  EXPECT_FALSE(communicator_.is_open());
  EXPECT_THAT([&] { sum(x, x); }, ThrowsError("was aborted: [broadcast] "));
}

TEST_F(GpuErrorsTest, NoGroupStaysOpenAfterARefusedCall) {
  const at::Tensor x = data({16}, 1);
  EXPECT_THROW(broadcast_from_rank_seven(x), comm::NcclError);
  EXPECT_EQ(nccl().group_end(), Result::kInvalidUsage);
  forget_broken_rules();
}

}  // namespace
}  // namespace lockstep::gpu_check
