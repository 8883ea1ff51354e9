// SPDX-License-Identifier: Apache-2.0
// NCCL's averages, and sums of values that it multiplies first.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/nccl/nccl_dtype.h"
#include "testing/matchers.h"
#include "tools/gpu_check/gpu_nccl_fixture.h"

namespace lockstep::gpu_check {
namespace {

using comm::nccl::CommHandle;
using comm::nccl::NcclApi;
using comm::nccl::RedOp;
using comm::nccl::Result;
using comm::nccl::ScalarResidence;
using comm::nccl::StreamHandle;
using ::lockstep::testing::BitwiseEqual;

class GpuReductionsTest : public GpuNcclTest {
 protected:
  // The sum of factor * x over all ranks; `factor` is a scalar of the residence's memory.
  at::Tensor scaled_sum(const at::Tensor& x, const at::Tensor& factor, ScalarResidence residence) {
    const at::Tensor sum = at::zeros_like(x);
    RedOp op = RedOp::kSum;
    launch("scaled sum", [&](const NcclApi& nccl, CommHandle comm, StreamHandle stream) {
      const Result made = nccl.red_op_create_pre_mul_sum(
          &op, factor.mutable_data_ptr(), comm::nccl::as_summands(x)->dtype, residence, comm);
      return made == Result::kSuccess ? all_reduce(nccl, x, sum, comm, stream, op) : made;
    });
    launch("end of scaled sum", [&](const NcclApi& nccl, CommHandle comm, StreamHandle /*stream*/) {
      return nccl.red_op_destroy(op, comm);
    });
    return sum;
  }
};

TEST_F(GpuReductionsTest, AnAverageOverOneRankIsItsInput) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const at::Tensor x = data({1000}, 1, dtype);
    const at::Tensor average = at::zeros_like(x);
    launch("average", [&](const NcclApi& nccl, CommHandle comm, StreamHandle stream) {
      return all_reduce(nccl, x, average, comm, stream, RedOp::kAvg);
    });
    EXPECT_THAT(average, BitwiseEqual(x)) << dtype;
  }
}

// Multiples of a power of two have the same bits wherever they are computed.
TEST_F(GpuReductionsTest, PreMulSumTakesAFactorFromTheHost) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor x = data({1000}, 1, dtype);
    const at::Tensor factor = at::full({}, 0.25, dtype);
    EXPECT_THAT(scaled_sum(x, factor, ScalarResidence::kHostImmediate), BitwiseEqual(x * 0.25))
        << dtype;
  }
}

TEST_F(GpuReductionsTest, PreMulSumReadsAFactorOnTheDeviceWhenItRuns) {
  const at::Tensor x = data({1000}, 1);
  const at::Tensor factor = at::full({}, 0.25, at::kFloat).to(device());
  factor.mul_(2);
  EXPECT_THAT(scaled_sum(x, factor, ScalarResidence::kDevice), BitwiseEqual(x * 0.5));
}

}  // namespace
}  // namespace lockstep::gpu_check
