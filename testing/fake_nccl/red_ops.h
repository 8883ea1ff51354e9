// SPDX-License-Identifier: Apache-2.0
// red_ops.h: the reductions that a caller made.
#pragma once

#include "testing/fake_nccl/call.h"
#include "testing/fake_nccl/communicator.h"

namespace lockstep::fake_nccl::internal {

Result create_pre_mul_sum(RedOp* op, void* scalar, DataType dtype, ScalarResidence residence,
                          Communicator* comm);
Result destroy_red_op(RedOp op, Communicator* comm);

// Gives the call what its `op` stands for.
Result resolve_red_op(const Communicator& comm, Call* call);

}  // namespace lockstep::fake_nccl::internal
