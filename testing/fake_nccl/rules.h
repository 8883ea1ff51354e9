// SPDX-License-Identifier: Apache-2.0
// rules.h: what a collective may be given, as far as one rank's call tells.
#pragma once

#include "testing/fake_nccl/communicator.h"

namespace lockstep::fake_nccl::internal {

// The communicator may take a call now.
Result check_ready(Communicator* comm, const char* function);

// dtype, root, pointers, memory, stream.
Result check_call(const Communicator& comm, const Call& call);

// Operations of one group run in any order, so that none may write what another uses.
void check_overlaps_in_group(const Submission& calls);

}  // namespace lockstep::fake_nccl::internal
