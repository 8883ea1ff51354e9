// SPDX-License-Identifier: Apache-2.0
// execute.h: a round of collectives in which all ranks have arrived.
#pragma once

#include "testing/fake_nccl/communicator.h"

namespace lockstep::fake_nccl::internal {

// Orders the streams as NCCL promises, tells the devices of one kernel for each rank, and moves and
// sums the data. Returns kSuccess, or why nothing was done.
Result execute(const Clique& clique);

}  // namespace lockstep::fake_nccl::internal
