// SPDX-License-Identifier: Apache-2.0
// NCCL's C interface: names, arguments and results are those of nccl.h.
#include <string>

#include "testing/fake_nccl/fake_nccl.h"
#include "testing/fake_nccl/faults.h"
#include "testing/fake_nccl/group.h"
#include "testing/fake_nccl/init.h"
#include "testing/fake_nccl/library.h"
#include "testing/fake_nccl/red_ops.h"
#include "testing/fake_nccl/reports.h"
#include "testing/fake_nccl/rules.h"

#define FAKE_NCCL_EXPORT extern "C" FAKE_NCCL_API

namespace lockstep::fake_nccl::internal {
namespace {

Result check_attached() {
  return library().is_attached
             ? Result::kSuccess
             : fail(Result::kUnhandledCudaError, "no devices: fake_nccl_attach was not called");
}

Result strike(int rank, const char* function) {
  const std::string text = std::string(function) + " of rank " + std::to_string(rank);
  if (strikes(kFakeSystemError, rank)) {
    return fail(Result::kSystemError, text + " failed");
  }
  if (strikes(kFakeOutOfMemory, rank)) {
    return fail(Result::kUnhandledCudaError, text + ": out of memory");
  }
  return Result::kSuccess;
}

Result take_call(Communicator* comm, Call* call) {
  Result result = strike(comm->rank, name_of(call->kind).c_str());
  if (result == Result::kSuccess && reduces(call->kind)) {
    result = resolve_red_op(*comm, call);
  }
  if (result == Result::kSuccess) {
    result = check_call(*comm, *call);
  }
  if (result == Result::kSuccess) {
    result = add_call(comm, *call);
  }
  if (result != Result::kSuccess) {
    // As in NCCL, the error stays with a communicator that is asked for it later.
    if (!comm->is_blocking) {
      break_rank(comm, result);
    }
    return result;
  }
  ++comm->operations_called;
  comm->calls_are_dropped |= strikes(kFakeRankNeverArrives, comm->rank);
  return result;
}

Result collective(CommHandle handle, Call call) {
  Lock lock = lock_library();
  CallGroup group;
  Result result = check_attached();
  const std::string name = name_of(call.kind);
  Communicator* const comm =
      result == Result::kSuccess ? live(handle, name.c_str(), &result) : nullptr;
  if (comm != nullptr) {
    result = comm->state == State::kFinalized
                 ? refuse(Result::kInvalidArgument,
                          describe(*comm) + ", " + name + ": it was finalized before")
                 : check_ready(comm, name.c_str());
    if (result == Result::kSuccess) {
      result = take_call(comm, &call);
    }
  }
  return group.end(result, lock);
}

// What a communicator that is ready knows of itself.
template <class Value>
Result ask(CommHandle handle, const char* function, int* answer, const Value& value) {
  const Lock lock = lock_library();
  Result result = Result::kSuccess;
  Communicator* const comm = live(handle, function, &result);
  if (comm == nullptr) {
    return result;
  }
  if (answer == nullptr) {
    return refuse(Result::kInvalidArgument,
                  std::string(function) + ": expected a place for the answer, got null");
  }
  result = check_ready(comm, function);
  if (result == Result::kSuccess) {
    *answer = value(*comm);
  }
  return result;
}

}  // namespace
}  // namespace lockstep::fake_nccl::internal

using namespace lockstep::fake_nccl::internal;  // NOLINT: the functions below are its face

FAKE_NCCL_EXPORT Result ncclGetVersion(int* version) {
  const Lock lock = lock_library();
  if (version == nullptr) {
    return refuse(Result::kInvalidArgument,
                  "get_version: expected a place for the version, got null");
  }
  *version = lockstep::comm::nccl::kHeaderVersion;
  return Result::kSuccess;
}

FAKE_NCCL_EXPORT Result ncclGetUniqueId(UniqueId* id) {
  const Lock lock = lock_library();
  if (id == nullptr) {
    return refuse(Result::kInvalidArgument, "get_unique_id: expected a place for it, got null");
  }
  *id = new_unique_id();
  return Result::kSuccess;
}

FAKE_NCCL_EXPORT const char* ncclGetErrorString(Result result) { return text_of(result); }

FAKE_NCCL_EXPORT const char* ncclGetLastError(CommHandle /*comm*/) {
  const Lock lock = lock_library();
  thread_local std::string text;
  text = last_error();
  return text.c_str();
}

FAKE_NCCL_EXPORT Result ncclCommInitAll(CommHandle* comms, int count, const int* devices) {
  Lock lock = lock_library();
  CallGroup group;
  Result result = check_attached();
  if (result == Result::kSuccess) {
    result = init_all(comms, count, devices);
  }
  return group.end(result, lock);
}

FAKE_NCCL_EXPORT Result ncclCommInitRankConfig(CommHandle* comm, int ranks, UniqueId id, int rank,
                                               Config* config) {
  Lock lock = lock_library();
  // NCCL fails here with the group it opened for the call still open.
  if (!library().is_attached || strikes(kFakeNoDriver, rank)) {
    leak_level();
    expect_stray_end();
    return fail(Result::kUnhandledCudaError,
                "init of rank " + std::to_string(rank) + ": there is no driver or no device");
  }
  CallGroup group;
  const Result result = init_rank(comm, ranks, id, rank, config);
  const Result ended = group.end(result, lock);
  if (ended != Result::kSuccess) {
    expect_stray_end();
    return ended;
  }
  return state_of(*find(*comm)) == Result::kInProgress && config != nullptr && config->blocking == 0
             ? Result::kInProgress
             : Result::kSuccess;
}

FAKE_NCCL_EXPORT Result ncclCommFinalize(CommHandle handle) {
  Lock lock = lock_library();
  if (handle == nullptr) {
    return Result::kSuccess;
  }
  CallGroup group;
  Result result = Result::kSuccess;
  Communicator* const comm = live(handle, "comm_finalize", &result);
  if (comm != nullptr) {
    result = comm->state == State::kFinalized
                 ? refuse(Result::kInvalidArgument,
                          describe(*comm) + ", comm_finalize: it was finalized before")
                 : check_ready(comm, "comm_finalize");
    if (result == Result::kSuccess) {
      result = add_finalize(comm);
      comm->state = State::kFinalized;
    }
  }
  return group.end(result, lock);
}

FAKE_NCCL_EXPORT Result ncclCommDestroy(CommHandle handle) {
  const Lock lock = lock_library();
  Result result = Result::kSuccess;
  Communicator* const comm = handle == nullptr ? nullptr : live(handle, "comm_destroy", &result);
  if (comm != nullptr) {
    destroy(comm);
  }
  return result;
}

FAKE_NCCL_EXPORT Result ncclCommAbort(CommHandle handle) {
  const Lock lock = lock_library();
  Result result = Result::kSuccess;
  Communicator* const comm = handle == nullptr ? nullptr : live(handle, "comm_abort", &result);
  if (comm != nullptr) {
    abort(comm);
  }
  return result;
}

FAKE_NCCL_EXPORT Result ncclCommGetAsyncError(CommHandle handle, Result* error) {
  const Lock lock = lock_library();
  Result result = Result::kSuccess;
  Communicator* const comm = live(handle, "comm_get_async_error", &result);
  if (comm == nullptr) {
    return result;
  }
  if (error == nullptr) {
    return refuse(Result::kInvalidArgument,
                  "comm_get_async_error: expected a place for the error, got null");
  }
  if (strikes(kFakeRemoteError, comm->rank)) {
    fail(Result::kRemoteError, "a peer of rank " + std::to_string(comm->rank) + " is gone");
    comm->clique->is_injected = true;
    break_rank(comm, Result::kRemoteError);
  }
  *error = poll(comm);
  return Result::kSuccess;
}

FAKE_NCCL_EXPORT Result ncclCommCount(CommHandle comm, int* ranks) {
  return ask(comm, "comm_count", ranks, [](const Communicator& of) { return of.clique->ranks; });
}

FAKE_NCCL_EXPORT Result ncclCommCuDevice(CommHandle comm, int* device) {
  return ask(comm, "comm_cu_device", device, [](const Communicator& of) { return of.device; });
}

FAKE_NCCL_EXPORT Result ncclCommUserRank(CommHandle comm, int* rank) {
  return ask(comm, "comm_user_rank", rank, [](const Communicator& of) { return of.rank; });
}

FAKE_NCCL_EXPORT Result ncclRedOpCreatePreMulSum(RedOp* op, void* scalar, DataType dtype,
                                                 ScalarResidence residence, CommHandle handle) {
  const Lock lock = lock_library();
  const char* const function = "red_op_create_pre_mul_sum";
  Result result = Result::kSuccess;
  Communicator* const comm = live(handle, function, &result);
  if (comm == nullptr) {
    return result;
  }
  result = check_ready(comm, function);
  return result == Result::kSuccess ? create_pre_mul_sum(op, scalar, dtype, residence, comm)
                                    : result;
}

FAKE_NCCL_EXPORT Result ncclRedOpDestroy(RedOp op, CommHandle handle) {
  const Lock lock = lock_library();
  Result result = Result::kSuccess;
  Communicator* const comm = live(handle, "red_op_destroy", &result);
  return comm == nullptr ? result : destroy_red_op(op, comm);
}

FAKE_NCCL_EXPORT Result ncclAllReduce(const void* send, void* recv, size_t count, DataType dtype,
                                      RedOp op, CommHandle comm, StreamHandle stream) {
  return collective(comm, {Kind::kAllReduce, send, recv, count, dtype, op, nullptr, -1, stream});
}

FAKE_NCCL_EXPORT Result ncclReduce(const void* send, void* recv, size_t count, DataType dtype,
                                   RedOp op, int root, CommHandle comm, StreamHandle stream) {
  return collective(comm, {Kind::kReduce, send, recv, count, dtype, op, nullptr, root, stream});
}

FAKE_NCCL_EXPORT Result ncclBroadcast(const void* send, void* recv, size_t count, DataType dtype,
                                      int root, CommHandle comm, StreamHandle stream) {
  return collective(
      comm, {Kind::kBroadcast, send, recv, count, dtype, RedOp::kSum, nullptr, root, stream});
}

FAKE_NCCL_EXPORT Result ncclAllGather(const void* send, void* recv, size_t send_count,
                                      DataType dtype, CommHandle comm, StreamHandle stream) {
  return collective(
      comm, {Kind::kAllGather, send, recv, send_count, dtype, RedOp::kSum, nullptr, -1, stream});
}

FAKE_NCCL_EXPORT Result ncclReduceScatter(const void* send, void* recv, size_t recv_count,
                                          DataType dtype, RedOp op, CommHandle comm,
                                          StreamHandle stream) {
  return collective(comm,
                    {Kind::kReduceScatter, send, recv, recv_count, dtype, op, nullptr, -1, stream});
}

FAKE_NCCL_EXPORT Result ncclGroupStart() {
  const Lock lock = lock_library();
  group_start();
  return Result::kSuccess;
}

FAKE_NCCL_EXPORT Result ncclGroupEnd() {
  Lock lock = lock_library();
  return group_end(lock);
}
