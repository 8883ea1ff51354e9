// SPDX-License-Identifier: Apache-2.0
// nccl_errors: what NCCL answered, as an exception.
#pragma once

#include <string>

#include "comm/errors.h"
#include "comm/nccl/nccl_api.h"

namespace lockstep::comm::nccl {

// The error to throw when a call of NCCL for `op` answered `result`: names the call, NCCL's word
// for the result and its last message. Make it before the rank is aborted: NCCL keeps only one
// message, and later calls may replace it.
//   if (result != Result::kSuccess) throw nccl_error(nccl, "broadcast", "ncclGroupEnd", result);
NcclError nccl_error(const NcclApi& nccl, const char* op, const char* call, Result result,
                     const ErrorContext& context = {});

}  // namespace lockstep::comm::nccl
