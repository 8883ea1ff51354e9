// SPDX-License-Identifier: Apache-2.0
#include "testing/fake_nccl/rules.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "testing/fake_nccl/library.h"
#include "testing/fake_nccl/reports.h"

namespace lockstep::fake_nccl::internal {
namespace {

std::string who(const Communicator& comm, const Call& call) {
  return describe(comm) + ", operation " + std::to_string(comm.operations_called) + ", " +
         describe(call);
}

std::string bytes(size_t count) { return std::to_string(count) + " bytes"; }

// The memory that the rank gives, or what is wrong with it.
std::string misuse(const Communicator& comm, const Call& call, const Range& range) {
  const std::string which = range.write ? "recv" : "send";
  if (range.bytes == 0) {
    return "";
  }
  if (range.address == nullptr) {
    return "expected a " + which + " buffer of " + bytes(range.bytes) + ", got null";
  }
  const FakeNcclMemory memory = library().host.memory_at(range.address);
  const std::string expected =
      "expected the " + which + " buffer in live memory of device " + std::to_string(comm.device);
  if (memory.device < 0) {
    return expected + ", got memory that is of no device or was freed";
  }
  if (memory.device != comm.device) {
    return expected + ", got memory of device " + std::to_string(memory.device);
  }
  if (memory.bytes < range.bytes) {
    return "expected a " + which + " buffer of " + bytes(range.bytes) + ", got " +
           bytes(memory.bytes) + " to the end of the allocation";
  }
  if (reinterpret_cast<uintptr_t>(range.address) % size_of(call.dtype) != 0) {
    return "expected the " + which + " buffer aligned to the " + bytes(size_of(call.dtype)) +
           " of " + name_of(call.dtype) + ", got one that is not";
  }
  return "";
}

std::string misuse_of_stream(const Communicator& comm, const Call& call) {
  const int device = library().host.device_of_stream(call.stream);
  if (device == comm.device) {
    return "";
  }
  return "expected a stream of device " + std::to_string(comm.device) + ", got " +
         (device < 0 ? "what is no stream" : "one of device " + std::to_string(device));
}

std::string misuse_of_arguments(const Communicator& comm, const Call& call) {
  const int ranks = comm.clique->ranks;
  if (!is_known(call.dtype)) {
    return "expected a dtype of nccl.h";
  }
  if (reduces(call.kind) && is_float8(call.dtype)) {
    return "the fake does not reduce " + name_of(call.dtype);
  }
  if (has_root(call.kind) && (call.root < 0 || call.root >= ranks)) {
    return "expected a root below " + std::to_string(ranks);
  }
  if (call.count > std::numeric_limits<size_t>::max() / (size_of(call.dtype) * ranks)) {
    return "expected a count whose bytes can be counted";
  }
  return "";
}

std::string place_of_overlap(Kind kind) {
  switch (kind) {
    case Kind::kAllGather:
      return "send is at the rank's part of recv";
    case Kind::kReduceScatter:
      return "recv is at the rank's part of send";
    default:
      return "send and recv are the same";
  }
}

void check_overlap(const Communicator& comm, const Call& call) {
  const Range send = send_range(call, comm.rank, comm.clique->ranks);
  const Range recv = recv_range(call, comm.rank, comm.clique->ranks);
  if (meet(send, recv) && !is_in_place(call, comm.rank)) {
    report(who(comm, call) + ": the send and the recv buffer overlap, which they may only where " +
           place_of_overlap(call.kind));
  }
}

}  // namespace

Result check_ready(Communicator* comm, const char* function) {
  const std::string call = describe(*comm) + ", " + function + ": ";
  switch (state_of(*comm)) {
    case Result::kSuccess:
      return Result::kSuccess;
    case Result::kInProgress:
      return refuse(Result::kInvalidArgument, call +
                                                  "the call before it is still in progress; ask "
                                                  "comm_get_async_error until it is not");
    default:
      return fail(comm->error,
                  call + "the communicator has met an error before: " + text_of(comm->error));
  }
}

Result check_call(const Communicator& comm, const Call& call) {
  std::string wrong = misuse_of_arguments(comm, call);
  if (wrong.empty()) {
    wrong = misuse(comm, call, send_range(call, comm.rank, comm.clique->ranks));
  }
  if (wrong.empty()) {
    wrong = misuse(comm, call, recv_range(call, comm.rank, comm.clique->ranks));
  }
  if (wrong.empty()) {
    wrong = misuse_of_stream(comm, call);
  }
  if (!wrong.empty()) {
    return refuse(Result::kInvalidArgument, who(comm, call) + ": " + wrong);
  }
  check_overlap(comm, call);
  return Result::kSuccess;
}

void check_overlaps_in_group(const Submission& calls) {
  struct Use {
    Range range;
    const Communicator* comm;
    const Call* call;
  };
  std::vector<Use> uses;
  for (const auto& batch : calls.batches) {
    for (const Call& call : batch.calls) {
      for (const Range& range : accesses(call, batch.comm->rank, batch.comm->clique->ranks)) {
        uses.push_back({range, batch.comm, &call});
      }
    }
  }
  std::sort(uses.begin(), uses.end(),
            [](const Use& a, const Use& b) { return a.range.address < b.range.address; });
  for (size_t i = 0; i < uses.size(); ++i) {
    for (size_t j = i + 1; j < uses.size() && meet(uses[i].range, uses[j].range); ++j) {
      if ((uses[i].range.write || uses[j].range.write) && uses[i].call != uses[j].call) {
        report(describe(*uses[i].comm) + ": " + describe(*uses[i].call) + " and " +
               describe(*uses[j].call) + " of " + describe(*uses[j].comm) +
               " are in one group, and one writes memory that the other uses");
        return;
      }
    }
  }
}

}  // namespace lockstep::fake_nccl::internal
