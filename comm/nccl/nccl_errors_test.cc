// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/nccl_errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace lockstep::comm::nccl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

NcclApi api_with(const char* (*error_string)(Result), const char* (*last_error)(CommHandle)) {
  NcclApi api;
  api.get_error_string = error_string;
  api.get_last_error = last_error;
  return api;
}

TEST(NcclErrorTest, NamesOperationCallResultRankAndDevice) {
  const NcclApi api = api_with([](Result) { return "invalid usage"; },
                               [](CommHandle) { return "two ranks on one device"; });
  const NcclError error = nccl_error(api, "broadcast", "ncclGroupEnd", Result::kInvalidUsage,
                                     {2, c10::Device("cuda:1"), false});
  EXPECT_THAT(
      error.what_without_backtrace(),
      HasSubstr("[broadcast] ncclGroupEnd failed: invalid usage (result 5); NCCL's last message: "
                "two ranks on one device (rank 2, device cuda:1)"));
  EXPECT_EQ(error.rank(), 2);
  EXPECT_EQ(error.device(), c10::Device("cuda:1"));
}

TEST(NcclErrorTest, LeavesOutAMessageThatNcclDoesNotHave) {
  const NcclApi empty =
      api_with([](Result) { return "internal error"; }, [](CommHandle) { return ""; });
  EXPECT_THAT(nccl_error(empty, "x", "ncclReduce", Result::kInternalError).what_without_backtrace(),
              AllOf(HasSubstr("internal error (result 3)"), Not(HasSubstr("last message"))));
}

TEST(NcclErrorTest, ToleratesATableWithoutAnyText) {
  const NcclApi silent = api_with([](Result) -> const char* { return nullptr; },
                                  [](CommHandle) -> const char* { return nullptr; });
  EXPECT_THAT(
      nccl_error(silent, "x", "ncclReduce", static_cast<Result>(99)).what_without_backtrace(),
      HasSubstr("[x] ncclReduce failed: unknown result (result 99)"));
}

// NCCL answers these without a driver.
TEST(NcclErrorTest, CarriesTheTextOfTheRealLibrary) {
  std::string reason;
  const NcclApi* const api = find_nccl(&reason);
  ASSERT_NE(api, nullptr) << reason;
  Result state = Result::kSuccess;
  const Result result = api->comm_get_async_error(nullptr, &state);
  EXPECT_EQ(result, Result::kInvalidArgument);
  EXPECT_THAT(
      nccl_error(*api, "check_health", "ncclCommGetAsyncError", result).what_without_backtrace(),
      HasSubstr("invalid argument (run with NCCL_DEBUG=WARN for details) (result 4); "
                "NCCL's last message: "));
}

}  // namespace
}  // namespace lockstep::comm::nccl
