// SPDX-License-Identifier: Apache-2.0
// nccl_api: NCCL's functions, found at run time, so that one program runs with and without NCCL,
// CUDA or a driver. Tests put a fake in its place.
//   std::string reason;
//   if (const NcclApi* nccl = find_nccl(&reason)) { ... } else { log(reason); }
#pragma once

#include <cstddef>
#include <string>

#include "comm/nccl/nccl_types.h"

namespace lockstep::comm::nccl {

// One member for each function used, named as nccl.h names it without "nccl". Null only before
// load_nccl() has filled it.
struct NcclApi {
  Result (*get_version)(int* version) = nullptr;
  Result (*get_unique_id)(UniqueId* id) = nullptr;
  const char* (*get_error_string)(Result result) = nullptr;
  const char* (*get_last_error)(CommHandle comm) = nullptr;

  Result (*comm_init_all)(CommHandle* comms, int count, const int* devices) = nullptr;
  Result (*comm_init_rank_config)(CommHandle* comm, int ranks, UniqueId id, int rank,
                                  Config* config) = nullptr;
  Result (*comm_finalize)(CommHandle comm) = nullptr;
  Result (*comm_destroy)(CommHandle comm) = nullptr;
  Result (*comm_abort)(CommHandle comm) = nullptr;
  Result (*comm_get_async_error)(CommHandle comm, Result* error) = nullptr;
  Result (*comm_count)(CommHandle comm, int* ranks) = nullptr;
  Result (*comm_cu_device)(CommHandle comm, int* device) = nullptr;
  Result (*comm_user_rank)(CommHandle comm, int* rank) = nullptr;

  Result (*red_op_create_pre_mul_sum)(RedOp* op, void* scalar, DataType dtype,
                                      ScalarResidence residence, CommHandle comm) = nullptr;
  Result (*red_op_destroy)(RedOp op, CommHandle comm) = nullptr;

  Result (*all_reduce)(const void* send, void* recv, size_t count, DataType dtype, RedOp op,
                       CommHandle comm, StreamHandle stream) = nullptr;
  Result (*reduce)(const void* send, void* recv, size_t count, DataType dtype, RedOp op, int root,
                   CommHandle comm, StreamHandle stream) = nullptr;
  Result (*broadcast)(const void* send, void* recv, size_t count, DataType dtype, int root,
                      CommHandle comm, StreamHandle stream) = nullptr;
  Result (*all_gather)(const void* send, void* recv, size_t send_count, DataType dtype,
                       CommHandle comm, StreamHandle stream) = nullptr;
  Result (*reduce_scatter)(const void* send, void* recv, size_t recv_count, DataType dtype,
                           RedOp op, CommHandle comm, StreamHandle stream) = nullptr;
  Result (*group_start)() = nullptr;
  Result (*group_end)() = nullptr;

  std::string path;  // of the library, for messages
  int version = 0;   // 22809 is 2.28.9
};

// The library at `path`, which may be a bare name for the system's search. Loaded once a path; it
// stays loaded until the process ends, since NCCL's threads may run in it.
// Throws: c10::Error if it cannot be loaded, lacks a function (all missing ones are named) or is
//   older than kOldestVersion.
// Threads: safe.
const NcclApi& load_nccl(const std::string& path);

// The first NCCL found: LOCKSTEP_NCCL in the environment (a path, alone if set), the wheel's beside
// LibTorch, the system's "libnccl.so.2". Looked for once; the answer stays.
// Returns null if there is none; then `reason`, if given, says what was tried and why each failed.
// Threads: safe.
const NcclApi* find_nccl(std::string* reason = nullptr);

}  // namespace lockstep::comm::nccl
