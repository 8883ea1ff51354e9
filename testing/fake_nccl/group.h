// SPDX-License-Identifier: Apache-2.0
// group.h: the calling thread's group, and what becomes of its calls when it ends. A call outside
// of groups is a group of its own.
#pragma once

#include "testing/fake_nccl/communicator.h"
#include "testing/fake_nccl/library.h"

namespace lockstep::fake_nccl::internal {

int group_depth();

void group_start();
Result group_end(Lock& lock);

// Opens a group that only the library knows of, around one call. end() closes it.
class CallGroup {
 public:
  CallGroup();
  // Returns `result` of the call, or what became of it if this ends the outermost group.
  Result end(Result result, Lock& lock);
};

// Put what is called into the open group. The communicator's mode must fit to what is in it.
Result add_init(Communicator* comm);
Result add_call(Communicator* comm, const Call& call);
Result add_finalize(Communicator* comm);

// The communicator is gone: takes its calls out of the calling thread's group. Returns whether
// there were any.
bool drop_calls(const Communicator& comm);

// A failed init left a level open, as NCCL does when there is no driver.
void leak_level();
// The next end without a start is not the caller's fault: it cannot know how many levels are open.
void expect_stray_end();

// One question whether the communicator is still in progress.
Result poll(Communicator* comm);

}  // namespace lockstep::fake_nccl::internal
