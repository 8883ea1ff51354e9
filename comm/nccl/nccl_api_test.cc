// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/nccl_api.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "comm/nccl/internal/library_search.h"
#include "testing/matchers.h"

namespace lockstep::comm::nccl {
namespace {

using ::lockstep::testing::ThrowsError;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// The wheel's library, which loads without a driver and answers what needs none.
const NcclApi& real() {
  std::string reason;
  const NcclApi* const api = find_nccl(&reason);
  TORCH_CHECK(api != nullptr, reason);
  return *api;
}

// Where the build has put a shared library of this package.
std::string built(const std::string& name) {
  const char* const root = std::getenv("TEST_SRCDIR");
  const char* const workspace = std::getenv("TEST_WORKSPACE");
  return root == nullptr ? "./" + name : std::string(root) + "/" + workspace + "/comm/nccl/" + name;
}

TEST(LoadNcclTest, LoadsTheWheelsLibraryWithoutADriver) {
  EXPECT_GE(real().version, kHeaderVersion);
  EXPECT_THAT(real().path, EndsWith("/nvidia/nccl/lib/libnccl.so.2"));
  int version = 0;
  EXPECT_EQ(real().get_version(&version), Result::kSuccess);
  EXPECT_EQ(version, real().version);
}

TEST(LoadNcclTest, RealLibraryAnswersThroughTheTable) {
  UniqueId id = {};
  EXPECT_EQ(real().get_unique_id(&id), Result::kSuccess);
  const UniqueId zero = {};
  EXPECT_NE(std::memcmp(&id, &zero, sizeof id), 0);
  EXPECT_EQ(real().group_start(), Result::kSuccess);
  EXPECT_EQ(real().group_end(), Result::kSuccess);
  EXPECT_EQ(real().group_end(), Result::kInvalidUsage);  // there is none to end
  EXPECT_STREQ(real().get_error_string(Result::kSuccess), "no error");
}

TEST(LoadNcclTest, RealLibraryRefusesANullCommunicator) {
  int number = 0;
  RedOp op = RedOp::kSum;
  float scalar = 0.5f;
  EXPECT_EQ(real().comm_count(nullptr, &number), Result::kInvalidArgument);
  EXPECT_EQ(real().comm_cu_device(nullptr, &number), Result::kInvalidArgument);
  EXPECT_EQ(real().comm_user_rank(nullptr, &number), Result::kInvalidArgument);
  EXPECT_EQ(real().red_op_create_pre_mul_sum(&op, &scalar, DataType::kFloat32,
                                             ScalarResidence::kHostImmediate, nullptr),
            Result::kInvalidArgument);
  EXPECT_EQ(
      real().all_reduce(nullptr, nullptr, 1, DataType::kFloat32, RedOp::kSum, nullptr, nullptr),
      Result::kInvalidArgument);
  EXPECT_STREQ(real().get_error_string(Result::kInvalidArgument),
               "invalid argument (run with NCCL_DEBUG=WARN for details)");
  EXPECT_THAT(real().get_last_error(nullptr), HasSubstr("NULL"));
}

TEST(LoadNcclTest, LoadsAPathOnce) {
  const NcclApi* first = nullptr;
  const NcclApi* second = nullptr;
  std::thread other([&] { first = &load_nccl(real().path); });
  second = &load_nccl(real().path);
  other.join();
  EXPECT_EQ(first, second);
  EXPECT_EQ(second, &real());
}

TEST(LoadNcclTest, NamesThePathThatDoesNotExist) {
  EXPECT_THAT([] { load_nccl("/nowhere/libnccl.so.2"); },
              ThrowsError("[load_nccl] expected a shared library at '/nowhere/libnccl.so.2', got: "
                          "/nowhere/libnccl.so.2: cannot open shared object file"));
}

TEST(LoadNcclTest, NamesAllMissingFunctions) {
  EXPECT_THAT([] { load_nccl("libm.so.6"); },
              ThrowsError("[load_nccl] expected NCCL at 'libm.so.6', got a library without: "
                          "ncclGetVersion, ncclGetUniqueId, ncclGetErrorString"));
  EXPECT_THAT([] { load_nccl("libm.so.6"); },
              ThrowsError("ncclReduceScatter, ncclGroupStart, ncclGroupEnd"));
}

TEST(LoadNcclTest, RefusesALibraryThatIsTooOld) {
  const std::string path = built("libold_nccl.so");
  EXPECT_THAT(
      [&] { load_nccl(path); },
      ThrowsError("[load_nccl] expected NCCL 2.28.0 or newer at '" + path + "', got 2.27.7"));
}

TEST(FindNcclTest, TriesTheWheelBesideLibTorchThenTheSystem) {
  EXPECT_THAT(internal::nccl_candidates(nullptr, "/site/torch/lib"),
              ElementsAre("/site/nvidia/nccl/lib/libnccl.so.2", "libnccl.so.2"));
  EXPECT_THAT(internal::nccl_candidates("", ""), ElementsAre("libnccl.so.2"));
}

TEST(FindNcclTest, TriesAGivenPathAlone) {
  EXPECT_THAT(internal::nccl_candidates("/mine.so", "/site/torch/lib"), ElementsAre("/mine.so"));
}

TEST(FindNcclTest, KnowsWhereLibTorchLies) {
  EXPECT_THAT(internal::libtorch_folder(), EndsWith("/torch/lib"));
}

TEST(FindNcclTest, TakesTheFirstThatLoads) {
  const internal::SearchResult found =
      internal::search_nccl({"/nowhere/a.so", real().path, "/nowhere/b.so"});
  EXPECT_EQ(found.api, &real());
  EXPECT_EQ(found.reason, "");
}

TEST(FindNcclTest, TellsWhyEachCandidateFailed) {
  const internal::SearchResult found = internal::search_nccl({"/nowhere/a.so", "libm.so.6"});
  EXPECT_EQ(found.api, nullptr);
  EXPECT_THAT(found.reason,
              AllOf(HasSubstr("no NCCL: [load_nccl] expected a shared library at '/nowhere/a.so'"),
                    HasSubstr("; [load_nccl] expected NCCL at 'libm.so.6', got a library without"),
                    Not(HasSubstr("no NCCL: no NCCL"))));
}

// The answer stays for the process, so these look in a process of their own.
int look_with(const char* path) {
  setenv("LOCKSTEP_NCCL", path, /*overwrite=*/1);
  std::string reason;
  const NcclApi* const api = find_nccl(&reason);
  std::fprintf(stderr, "found %s; %s", api == nullptr ? "none" : api->path.c_str(), reason.c_str());
  return find_nccl() == api ? 0 : 1;
}

TEST(FindNcclDeathTest, TakesThePathInTheEnvironment) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string path = internal::nccl_candidates(nullptr, internal::libtorch_folder()).front();
  EXPECT_EXIT(std::exit(look_with(path.c_str())), ::testing::ExitedWithCode(0),
              "found .*/nvidia/nccl/lib/libnccl.so.2; $");
}

TEST(FindNcclDeathTest, LooksNowhereElseIfThePathInTheEnvironmentFails) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::exit(look_with("/nowhere/c.so")), ::testing::ExitedWithCode(0),
              "found none; no NCCL: .*/nowhere/c.so: cannot open shared object file");
}

}  // namespace
}  // namespace lockstep::comm::nccl
