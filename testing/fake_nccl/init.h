// SPDX-License-Identifier: Apache-2.0
// init.h: how ranks of a communicator come and go.
#pragma once

#include "testing/fake_nccl/communicator.h"
#include "testing/fake_nccl/library.h"

namespace lockstep::fake_nccl::internal {

// The communicator behind a handle that a call was given, unless it is gone; then `refused` says
// what to answer.
Communicator* live(CommHandle handle, const char* function, Result* refused);

// Of one rank, on the thread's current device; part of the open group.
Result init_rank(CommHandle* made, int ranks, const UniqueId& id, int rank, const Config* config);
// Of all ranks; part of the open group.
Result init_all(CommHandle* made, int ranks, const int* devices);
// The rank has come.
void arrive_in_init(Communicator* comm);

void destroy(Communicator* comm);
void abort(Communicator* comm);

}  // namespace lockstep::fake_nccl::internal
