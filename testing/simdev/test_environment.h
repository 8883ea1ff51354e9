// SPDX-License-Identifier: Apache-2.0
// test_environment.h: simulated devices for the tests of one GoogleTest program. One line of one of
// its files is enough, at namespace scope; main() stays GoogleTest's:
//   const bool kDevicesInUse = lockstep::simdev::use_in_tests();
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "testing/simdev/simdev.h"

namespace lockstep::simdev {

// Initialises the devices before the first test. After each test the host waits for all devices,
// the checker forgets the test's history, and faults that the test did not take with
// take_reports() fail it; modes of the checker stay as they are. Death tests run in programs of
// their own ("threadsafe"): a child of fork() has no device memory.
// Returns true.
bool use_in_tests(const Options& options = {});

// Whether the program, while faults are thrown, throws RaceError, once, with a message that contains
// all of `parts`. Takes the fault.
//   EXPECT_TRUE(finds_fault([&] { at::add(x, 1); }, {"'aten::fill_.Scalar'", "stream 1"}));
::testing::AssertionResult finds_fault(const std::function<void()>& program,
                                       const std::vector<std::string>& parts);

}  // namespace lockstep::simdev
