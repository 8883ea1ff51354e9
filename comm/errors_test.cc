// SPDX-License-Identifier: Apache-2.0
#include "comm/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <type_traits>

namespace lockstep::comm {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

c10::SourceLocation here() { return {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}; }

TEST(CommErrorTest, NamesRankAndDevice) {
  const Error error(here(), "the ring broke", {3, c10::Device("cuda:1"), true});
  EXPECT_THAT(error.what_without_backtrace(), HasSubstr("the ring broke (rank 3, device cuda:1)"));
  EXPECT_EQ(error.rank(), 3);
  EXPECT_EQ(error.device(), c10::Device("cuda:1"));
  EXPECT_TRUE(error.recoverable());
}

TEST(CommErrorTest, LeavesOutWhatIsNotKnown) {
  const Error error(here(), "the ring broke", {});
  EXPECT_THAT(error.what_without_backtrace(), Not(HasSubstr("(")));
  EXPECT_FALSE(error.rank().has_value());
  EXPECT_FALSE(error.device().has_value());
  EXPECT_FALSE(error.recoverable());
  const Error with_device(here(), "no answer", {std::nullopt, c10::Device("cpu"), false});
  EXPECT_THAT(with_device.what_without_backtrace(), HasSubstr("no answer (device cpu)"));
}

TEST(CommErrorTest, IsCaughtAsLibTorchsBackendError) {
  EXPECT_THROW(throw Error(here(), "x", {}), c10::DistBackendError);
  EXPECT_THROW(throw NcclError(here(), "x", {}), Error);
  EXPECT_THROW(throw TimeoutError(here(), "x", {}), Error);
  EXPECT_THROW(throw PeerLostError(here(), "x", {}), c10::Error);
  EXPECT_FALSE((std::is_base_of_v<NcclError, TimeoutError>));
}

}  // namespace
}  // namespace lockstep::comm
