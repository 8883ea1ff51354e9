// SPDX-License-Identifier: Apache-2.0
#include "parallel/intra_op_threads.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <thread>

namespace lockstep::parallel::internal {
namespace {

int count_in_a_new_thread() {
  int count = 0;
  std::thread([&] { count = at::get_num_threads(); }).join();
  return count;
}

// The counts of this test are ones that the default, the number of cores, hardly is.
TEST(IntraOpThreadsGuardTest, SetsTheCountForItsScopeOnly) {
  const int before = at::get_num_threads();
  {
    const IntraOpThreadsGuard guard(7);
    EXPECT_EQ(at::get_num_threads(), 7);
    {
      const IntraOpThreadsGuard inner(1);
      EXPECT_EQ(at::get_num_threads(), 1);
    }
    EXPECT_EQ(at::get_num_threads(), 7);
  }
  EXPECT_EQ(at::get_num_threads(), before);
}

TEST(IntraOpThreadsGuardTest, LeavesLaterThreadsAlone) {
  const int before = count_in_a_new_thread();
  const IntraOpThreadsGuard guard(5);
  EXPECT_EQ(count_in_a_new_thread(), before);
}

TEST(IntraOpThreadsGuardTest, LeavesLaterThreadsAloneAlsoWhenItIsSetInOne) {
  const int before = count_in_a_new_thread();
  std::thread([] { const IntraOpThreadsGuard guard(5); }).join();
  EXPECT_EQ(count_in_a_new_thread(), before);
}

TEST(IntraOpThreadsGuardTest, RestoresACountThatTheUserSet) {
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  {
    const IntraOpThreadsGuard guard(1);
    EXPECT_EQ(at::get_num_threads(), 1);
    EXPECT_EQ(count_in_a_new_thread(), 3);
  }
  EXPECT_EQ(at::get_num_threads(), 3);
  EXPECT_EQ(count_in_a_new_thread(), 3);
  at::set_num_threads(before);
}

}  // namespace
}  // namespace lockstep::parallel::internal
