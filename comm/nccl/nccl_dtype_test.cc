// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/nccl_dtype.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace lockstep::comm::nccl {
namespace {

TEST(NcclDtypeTest, AnyTensorIsItsBytes) {
  for (const at::ScalarType dtype : {at::kFloat, at::kShort, at::kComplexDouble, at::kBool}) {
    const at::Tensor tensor = at::zeros({3, 2}, dtype);
    EXPECT_EQ(as_bytes(tensor).count, tensor.nbytes()) << dtype;
    EXPECT_EQ(as_bytes(tensor).dtype, DataType::kUint8) << dtype;
  }
}

TEST(NcclDtypeTest, SummandsAreWhatNcclCanAdd) {
  const struct {
    at::ScalarType ours;
    DataType theirs;
    size_t each;  // of NCCL's elements in one of ours
  } known[] = {
      {at::kFloat, DataType::kFloat32, 1},
      {at::kDouble, DataType::kFloat64, 1},
      {at::kHalf, DataType::kFloat16, 1},
      {at::kBFloat16, DataType::kBfloat16, 1},
      {at::kComplexFloat, DataType::kFloat32, 2},
      {at::kComplexDouble, DataType::kFloat64, 2},
      {at::kChar, DataType::kInt8, 1},
      {at::kByte, DataType::kUint8, 1},
      {at::kInt, DataType::kInt32, 1},
      {at::kLong, DataType::kInt64, 1},
  };
  for (const auto& [ours, theirs, each] : known) {
    const auto summands = as_summands(at::zeros({3, 2}, ours));
    ASSERT_TRUE(summands) << ours;
    EXPECT_EQ(summands->dtype, theirs) << ours;
    EXPECT_EQ(summands->count, 6 * each) << ours;
    EXPECT_EQ(summands->op, RedOp::kSum) << ours;
  }
}

TEST(NcclDtypeTest, ALogicalOrIsTheMaximumOfBytes) {
  const auto summands = as_summands(at::zeros({4}, at::kBool));
  ASSERT_TRUE(summands);
  EXPECT_EQ(summands->dtype, DataType::kUint8);
  EXPECT_EQ(summands->op, RedOp::kMax);
}

TEST(NcclDtypeTest, OtherDtypesAreNoSummands) {
  for (const at::ScalarType dtype :
       {at::kShort, at::kUInt16, at::kUInt32, at::kUInt64, at::kComplexHalf, at::kFloat8_e5m2}) {
    EXPECT_FALSE(as_summands(at::empty({2}, dtype))) << dtype;
  }
}

}  // namespace
}  // namespace lockstep::comm::nccl
