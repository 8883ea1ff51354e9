// SPDX-License-Identifier: Apache-2.0
// The library before it is given devices: that of a machine without a driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/nccl/nccl_api.h"
#include "testing/fake_nccl/simulated_nccl.h"

namespace lockstep::fake_nccl {
namespace {

using comm::nccl::CommHandle;
using comm::nccl::Config;
using comm::nccl::NcclApi;
using comm::nccl::Result;
using comm::nccl::UniqueId;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StrEq;

const NcclApi& nccl() { return comm::nccl::load_nccl(library_path()); }

TEST(UnattachedTest, LoadsAsNccl) {
  EXPECT_EQ(nccl().version, 22809);
  UniqueId id = {};
  EXPECT_EQ(nccl().get_unique_id(&id), Result::kSuccess);
  for (int result = 0; result <= 8; ++result) {
    EXPECT_THAT(nccl().get_error_string(static_cast<Result>(result)), Not(StrEq("")));
  }
}

TEST(UnattachedTest, MakesNoCommunicators) {
  CommHandle comm = nullptr;
  EXPECT_EQ(nccl().comm_init_all(&comm, 1, nullptr), Result::kUnhandledCudaError);
  EXPECT_THAT(nccl().get_last_error(nullptr), HasSubstr("no devices"));
  EXPECT_EQ(nccl().group_end(), Result::kInvalidUsage);
}

TEST(UnattachedTest, LeavesAGroupOpenWhenARanksInitFails) {
  CommHandle comm = nullptr;
  Config config;
  EXPECT_EQ(nccl().comm_init_rank_config(&comm, 1, UniqueId{}, 0, &config),
            Result::kUnhandledCudaError);
  EXPECT_THAT(nccl().get_last_error(nullptr), HasSubstr("there is no driver or no device"));
  EXPECT_EQ(nccl().group_end(), Result::kSuccess);
  EXPECT_EQ(nccl().group_end(), Result::kInvalidUsage);
}

}  // namespace
}  // namespace lockstep::fake_nccl
