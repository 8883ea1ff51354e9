// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/nccl_types.h"

#include <gtest/gtest.h>
#include <nccl.h>

#include <climits>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace lockstep::comm::nccl {
namespace {

// Ours and NCCL's enums have one number for each name, and one size.
#define EXPECT_SAME_NUMBER(ours, theirs)         \
  static_assert(sizeof(ours) == sizeof(theirs)); \
  static_assert(static_cast<int>(ours) == static_cast<int>(theirs))

EXPECT_SAME_NUMBER(Result::kSuccess, ncclSuccess);
EXPECT_SAME_NUMBER(Result::kUnhandledCudaError, ncclUnhandledCudaError);
EXPECT_SAME_NUMBER(Result::kSystemError, ncclSystemError);
EXPECT_SAME_NUMBER(Result::kInternalError, ncclInternalError);
EXPECT_SAME_NUMBER(Result::kInvalidArgument, ncclInvalidArgument);
EXPECT_SAME_NUMBER(Result::kInvalidUsage, ncclInvalidUsage);
EXPECT_SAME_NUMBER(Result::kRemoteError, ncclRemoteError);
EXPECT_SAME_NUMBER(Result::kInProgress, ncclInProgress);
static_assert(ncclNumResults == 8, "NCCL has a result that Result does not name");

EXPECT_SAME_NUMBER(DataType::kInt8, ncclInt8);
EXPECT_SAME_NUMBER(DataType::kUint8, ncclUint8);
EXPECT_SAME_NUMBER(DataType::kInt32, ncclInt32);
EXPECT_SAME_NUMBER(DataType::kUint32, ncclUint32);
EXPECT_SAME_NUMBER(DataType::kInt64, ncclInt64);
EXPECT_SAME_NUMBER(DataType::kUint64, ncclUint64);
EXPECT_SAME_NUMBER(DataType::kFloat16, ncclFloat16);
EXPECT_SAME_NUMBER(DataType::kFloat32, ncclFloat32);
EXPECT_SAME_NUMBER(DataType::kFloat64, ncclFloat64);
EXPECT_SAME_NUMBER(DataType::kBfloat16, ncclBfloat16);
EXPECT_SAME_NUMBER(DataType::kFloat8e4m3, ncclFloat8e4m3);
EXPECT_SAME_NUMBER(DataType::kFloat8e5m2, ncclFloat8e5m2);
static_assert(ncclNumTypes == 12, "NCCL has a type that DataType does not name");

EXPECT_SAME_NUMBER(RedOp::kSum, ncclSum);
EXPECT_SAME_NUMBER(RedOp::kProd, ncclProd);
EXPECT_SAME_NUMBER(RedOp::kMax, ncclMax);
EXPECT_SAME_NUMBER(RedOp::kMin, ncclMin);
EXPECT_SAME_NUMBER(RedOp::kAvg, ncclAvg);
static_assert(ncclNumOps == 5, "NCCL has an operation that RedOp does not name");

EXPECT_SAME_NUMBER(ScalarResidence::kDevice, ncclScalarDevice);
EXPECT_SAME_NUMBER(ScalarResidence::kHostImmediate, ncclScalarHostImmediate);

static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
static_assert(alignof(UniqueId) == alignof(ncclUniqueId));
static_assert(sizeof(CommHandle) == sizeof(ncclComm_t));
static_assert(sizeof(StreamHandle) == sizeof(cudaStream_t));
static_assert(std::is_pointer_v<cudaStream_t>);

static_assert(kHeaderVersion == NCCL_VERSION_CODE, "the numbers here are those of another NCCL");
static_assert(encode_version(2, 28, 9) == NCCL_VERSION(2, 28, 9));
static_assert(kUndefined == NCCL_CONFIG_UNDEF_INT);

#define EXPECT_SAME_MEMBER(ours, theirs)                                   \
  static_assert(offsetof(Config, ours) == offsetof(ncclConfig_t, theirs)); \
  static_assert(std::is_same_v<decltype(Config::ours), decltype(ncclConfig_t::theirs)>)

static_assert(sizeof(Config) == sizeof(ncclConfig_t));
EXPECT_SAME_MEMBER(size, size);
EXPECT_SAME_MEMBER(magic, magic);
EXPECT_SAME_MEMBER(version, version);
EXPECT_SAME_MEMBER(blocking, blocking);
EXPECT_SAME_MEMBER(cga_cluster_size, cgaClusterSize);
EXPECT_SAME_MEMBER(min_ctas, minCTAs);
EXPECT_SAME_MEMBER(max_ctas, maxCTAs);
EXPECT_SAME_MEMBER(net_name, netName);
EXPECT_SAME_MEMBER(split_share, splitShare);
EXPECT_SAME_MEMBER(traffic_class, trafficClass);
EXPECT_SAME_MEMBER(comm_name, commName);
EXPECT_SAME_MEMBER(collnet_enable, collnetEnable);
EXPECT_SAME_MEMBER(cta_policy, CTAPolicy);
EXPECT_SAME_MEMBER(shrink_share, shrinkShare);
EXPECT_SAME_MEMBER(nvls_ctas, nvlsCTAs);
EXPECT_SAME_MEMBER(channels_per_net_peer, nChannelsPerNetPeer);
EXPECT_SAME_MEMBER(nvlink_centric_sched, nvlinkCentricSched);

// What the asserts above cannot compare: the values a Config starts with.
TEST(NcclTypesTest, ConfigStartsAsNcclsInitializerDoes) {
  Config ours;
  ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(std::memcmp(&ours, &theirs, sizeof ours), 0);
}

}  // namespace
}  // namespace lockstep::comm::nccl
