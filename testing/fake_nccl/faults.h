// SPDX-License-Identifier: Apache-2.0
// faults.h: what a test asked to go wrong.
#pragma once

#include "testing/fake_nccl/fake_nccl.h"

namespace lockstep::fake_nccl::internal {

void inject(FakeNcclFault fault, int rank, int after);
void forget_injected();

// A call happens at which the fault could strike the rank. Whether it does: once for each inject().
bool strikes(FakeNcclFault fault, int rank);

}  // namespace lockstep::fake_nccl::internal
