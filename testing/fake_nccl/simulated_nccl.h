// SPDX-License-Identifier: Apache-2.0
// simulated_nccl.h: the fake NCCL on simulated devices, for the tests of one GoogleTest program.
//   const bool kDevicesInUse = lockstep::fake_nccl::use_in_tests();
//   NcclCommunicator communicator(lockstep::fake_nccl::simulated_nccl(), devices);
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "comm/nccl/nccl_api.h"
#include "testing/fake_nccl/fake_nccl.h"
#include "testing/simdev/simdev.h"

namespace lockstep::fake_nccl {

// Where libfake_nccl.so lies: LOCKSTEP_FAKE_NCCL in the environment, else in Bazel's runfiles.
std::string library_path();

// NCCL's functions, to be called once the devices are initialised. Loads the library at the first
// call. Throws: c10::Error if it cannot be loaded.
const comm::nccl::NcclApi& simulated_nccl();

// simdev::use_in_tests(), and after each test: broken rules that the test did not take with
// take_reports() fail it, groups that it left open do, and modes, faults and counts are reset.
// Communicators stay. Returns true.
bool use_in_tests(const simdev::Options& options = {});

// The rules broken since the last call, oldest first, and forgets them.
std::vector<std::string> take_reports();

// "rank 1 (device 1) of communicator 3" for each that was neither destroyed nor aborted.
std::vector<std::string> live_communicators();

// Of the calling thread.
int open_groups();

FakeNcclCounters counters();
void reset_counters();

constexpr int kAnyRank = -1;
// See FakeNcclFault. It strikes once, at the `after`-th matching call from now.
void inject(FakeNcclFault fault, int rank = kAnyRank, int after = 0);

// How often a non-blocking call answers that it is in progress.
void set_polls(int polls);
// How long peers are waited for before that is a deadlock.
void set_deadline(std::chrono::milliseconds deadline);
// Sums in the order of a ring instead of the ranks'.
void set_ring_order(bool on);

}  // namespace lockstep::fake_nccl
