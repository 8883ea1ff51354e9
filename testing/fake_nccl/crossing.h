// SPDX-License-Identifier: Apache-2.0
// crossing.h: collectives of two communicators that share devices have to be called in one order on
// all of them, or each may hold the device that the other waits for.
#pragma once

#include <string>

#include "testing/fake_nccl/communicator.h"

namespace lockstep::fake_nccl::internal {

// The rank calls the operations of the communicator's round, as part of a group; calls of one group
// have no order. Returns what crosses them, or nothing.
std::string note_call(const Communicator& comm, const Submission& group);

// The round is complete.
void note_done(const Clique& clique);
// The communicator will not run any more.
void forget_crossings(const Clique& clique);

}  // namespace lockstep::fake_nccl::internal
