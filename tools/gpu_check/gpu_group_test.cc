// SPDX-License-Identifier: Apache-2.0
// Several calls of NCCL in one group, and many groups one after another.
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "comm/nccl/nccl_dtype.h"
#include "testing/matchers.h"
#include "tools/gpu_check/gpu_nccl_fixture.h"

namespace lockstep::gpu_check {
namespace {

using comm::nccl::CommHandle;
using comm::nccl::Elements;
using comm::nccl::NcclApi;
using comm::nccl::RedOp;
using comm::nccl::Result;
using comm::nccl::StreamHandle;
using ::lockstep::testing::BitwiseEqual;

using GpuGroupTest = GpuNcclTest;

bool taken(Result result) { return result == Result::kSuccess || result == Result::kInProgress; }

TEST_F(GpuGroupTest, HoldsCallsOfSeveralKindsDtypesAndSizes) {
  std::vector<at::Tensor> sends;
  std::vector<at::Tensor> receives;
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kLong}) {
    const auto seed = static_cast<int64_t>(sends.size()) + 1;
    sends.push_back(data({100 * seed + 1}, static_cast<uint64_t>(seed), dtype));
    receives.push_back(at::zeros_like(sends.back()));
  }
  launch("group", [&](const NcclApi& nccl, CommHandle comm, StreamHandle stream) {
    const Elements gathered = comm::nccl::as_bytes(sends[1]);
    const Elements scattered = *comm::nccl::as_summands(sends[2]);
    const Elements sent = comm::nccl::as_bytes(sends[3]);
    const std::vector<Result> results = {
        all_reduce(nccl, sends[0], receives[0], comm, stream),
        nccl.all_gather(sends[1].const_data_ptr(), receives[1].mutable_data_ptr(), gathered.count,
                        gathered.dtype, comm, stream),
        nccl.reduce_scatter(sends[2].const_data_ptr(), receives[2].mutable_data_ptr(),
                            scattered.count, scattered.dtype, RedOp::kSum, comm, stream),
        nccl.broadcast(sends[3].const_data_ptr(), receives[3].mutable_data_ptr(), sent.count,
                       sent.dtype, /*root=*/0, comm, stream)};
    for (const Result result : results) {
      EXPECT_TRUE(taken(result)) << static_cast<int>(result);
    }
    return Result::kSuccess;
  });
  for (size_t i = 0; i < sends.size(); ++i) {
    EXPECT_THAT(receives[i], BitwiseEqual(sends[i])) << "call " << i;
  }
}

TEST_F(GpuGroupTest, RunsInOrderWithoutTheHostWaiting) {
  std::vector<at::Tensor> chain = {data({1 << 16}, 1)};
  for (int step = 0; step < 100; ++step) {
    chain.push_back(at::zeros_like(chain.back()));
    const at::Tensor& from = chain[chain.size() - 2];
    const at::Tensor& to = chain.back();
    launch("step", [&](const NcclApi& nccl, CommHandle comm, StreamHandle stream) {
      return all_reduce(nccl, from, to, comm, stream);
    });
  }
  EXPECT_THAT(chain.back(), BitwiseEqual(chain.front()));
}

}  // namespace
}  // namespace lockstep::gpu_check
