// SPDX-License-Identifier: Apache-2.0
#include "testing/fake_nccl/call.h"

namespace lockstep::fake_nccl::internal {
namespace {

const char* at(const void* address, size_t offset) {
  return static_cast<const char*>(address) + offset;
}

size_t bytes(const Call& call) { return call.count * size_of(call.dtype); }

}  // namespace

bool reduces(Kind kind) { return kind != Kind::kBroadcast && kind != Kind::kAllGather; }

bool has_root(Kind kind) { return kind == Kind::kBroadcast || kind == Kind::kReduce; }

std::string name_of(Kind kind) {
  switch (kind) {
    case Kind::kAllReduce:
      return "all_reduce";
    case Kind::kReduce:
      return "reduce";
    case Kind::kBroadcast:
      return "broadcast";
    case Kind::kAllGather:
      return "all_gather";
    case Kind::kReduceScatter:
      return "reduce_scatter";
  }
  return "";
}

std::string describe(const Call& call) {
  std::string text =
      name_of(call.kind) + " of " + std::to_string(call.count) + " " + name_of(call.dtype);
  if (reduces(call.kind)) {
    text += " with " + (call.scalar ? "premulsum" : name_of(call.op));
  }
  if (has_root(call.kind)) {
    text += (call.kind == Kind::kReduce ? " to root " : " from root ") + std::to_string(call.root);
  }
  return text;
}

bool meet(const Range& a, const Range& b) {
  return a.bytes > 0 && b.bytes > 0 && a.address < at(b.address, b.bytes) &&
         b.address < at(a.address, a.bytes);
}

Range send_range(const Call& call, int rank, int ranks) {
  switch (call.kind) {
    case Kind::kBroadcast:
      return {call.send, rank == call.root ? bytes(call) : 0, false};
    case Kind::kReduceScatter:
      return {call.send, bytes(call) * ranks, false};
    default:
      return {call.send, bytes(call), false};
  }
}

Range recv_range(const Call& call, int rank, int ranks) {
  switch (call.kind) {
    case Kind::kReduce:
      return {call.recv, rank == call.root ? bytes(call) : 0, true};
    case Kind::kAllGather:
      return {call.recv, bytes(call) * ranks, true};
    default:
      return {call.recv, bytes(call), true};
  }
}

std::vector<Range> accesses(const Call& call, int rank, int ranks) {
  const Range send = send_range(call, rank, ranks), recv = recv_range(call, rank, ranks);
  std::vector<Range> used;
  const auto use = [&](const Range& range) {
    if (range.bytes > 0) {
      used.push_back(range);
    }
  };
  use(send);
  if (call.kind == Kind::kBroadcast && rank == call.root && is_in_place(call, rank)) {
    return used;
  }
  if (call.kind == Kind::kAllGather && is_in_place(call, rank)) {
    const size_t before = bytes(call) * rank, after = bytes(call) * (ranks - 1 - rank);
    use({recv.address, before, true});
    use({at(recv.address, before + bytes(call)), after, true});
    return used;
  }
  use(recv);
  return used;
}

bool is_in_place(const Call& call, int rank) {
  switch (call.kind) {
    case Kind::kAllGather:
      return call.send == at(call.recv, bytes(call) * rank);
    case Kind::kReduceScatter:
      return call.recv == at(call.send, bytes(call) * rank);
    default:
      return call.send == call.recv;
  }
}

size_t bytes_sent(const Call& call, int ranks) {
  const size_t to_others = bytes(call) * (ranks - 1);
  switch (call.kind) {
    case Kind::kAllReduce:
      return 2 * to_others;
    case Kind::kAllGather:
    case Kind::kReduceScatter:
      return ranks * to_others;
    default:
      return to_others;
  }
}

}  // namespace lockstep::fake_nccl::internal
