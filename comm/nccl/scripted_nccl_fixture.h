// SPDX-License-Identifier: Apache-2.0
// scripted_nccl_fixture: an NcclApi that does nothing but answer as a test has told it, and notes
// what it was asked, in order. For tests of the protocol; those of data use a fake with devices.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "comm/nccl/nccl_api.h"

namespace lockstep::comm::nccl {

// What the ranks answer. Ranks that are not named here succeed at once.
struct NcclScript {
  std::map<int, Result> init_refused;     // the init call of the rank answers this
  std::map<int, Result> async_error;      // asked for its state, the rank answers this
  std::map<int, int> polls;               // in progress that often after each group; -1: for ever
  std::map<int, Result> destroy_refused;  // comm_destroy of the rank answers this
  bool leaks_group_level = false;         // a refused init leaves a group open, as NCCL 2.28 does
  Result group_start = Result::kSuccess;
  Result group_end = Result::kSuccess;  // of an outermost group, instead of in progress
  Result unique_id = Result::kSuccess;
  std::string last_error = "scripted message";
};

// One script for the process. Threads: safe.
const NcclApi& scripted_nccl();
// Starts a new script with an empty log; forgets communicators.
void set_nccl_script(const NcclScript& script);
// Changes the script for what is asked from now on; the log stays.
void change_nccl_script(const NcclScript& script);

// What was asked since the script was set: "group_start", "init 0 on 1", "all_reduce 0 on 1",
// "group_end", "finalize 0", "destroy 0", "abort 0"; not how often the ranks were polled. "on" is
// the index of the current device. Whatever breaks a rule of NCCL starts with "wrong: ".
std::vector<std::string> nccl_log();
int live_nccl_ranks();
int open_nccl_groups();  // of the calling thread

}  // namespace lockstep::comm::nccl
