// SPDX-License-Identifier: Apache-2.0
// types.h: the types of NCCL's interface in this library's words, with names for messages.
#pragma once

#include <cstddef>
#include <string>

#include "comm/nccl/nccl_types.h"

namespace lockstep::fake_nccl::internal {

using comm::nccl::CommHandle;
using comm::nccl::Config;
using comm::nccl::DataType;
using comm::nccl::RedOp;
using comm::nccl::Result;
using comm::nccl::ScalarResidence;
using comm::nccl::StreamHandle;
using comm::nccl::UniqueId;

bool is_known(DataType dtype);
bool is_float8(DataType dtype);
size_t size_of(DataType dtype);
std::string name_of(DataType dtype);  // "float32"; "dtype 99" for what is none

bool is_built_in(RedOp op);
std::string name_of(RedOp op);

const char* text_of(Result result);

}  // namespace lockstep::fake_nccl::internal
