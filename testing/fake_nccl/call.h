// SPDX-License-Identifier: Apache-2.0
// call.h: one collective as one rank calls it, and the memory it uses.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "testing/fake_nccl/types.h"

namespace lockstep::fake_nccl::internal {

enum class Kind { kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter };

// A scalar that each value of the rank is multiplied by before the sum.
struct PreMulSum {
  CommHandle comm;
  DataType dtype;
  unsigned char value[8];         // for a host scalar
  const void* address = nullptr;  // of a device scalar, read when the collective runs
  bool is_destroyed = false;
};

struct Call {
  Kind kind;
  const void* send;
  void* recv;
  size_t count;
  DataType dtype;
  RedOp op = RedOp::kSum;
  std::shared_ptr<const PreMulSum> scalar = nullptr;  // op is then none of the built-in ones
  int root = -1;                                      // where there is one
  StreamHandle stream;
};

bool reduces(Kind kind);
bool has_root(Kind kind);

std::string name_of(Kind kind);
// "broadcast of 8 float32 from root 0"
std::string describe(const Call& call);

struct Range {
  const void* address;
  size_t bytes;
  bool write;
};
bool meet(const Range& a, const Range& b);

// What the rank needs to give: none where the collective does not look at the pointer.
Range send_range(const Call& call, int rank, int ranks);
Range recv_range(const Call& call, int rank, int ranks);

// What the rank's kernel reads and writes; a part that is in place where it has to be is not
// written.
std::vector<Range> accesses(const Call& call, int rank, int ranks);

// Whether send and recv are at the one offset at which they may overlap.
bool is_in_place(const Call& call, int rank);

// From one rank to another, by the algorithm that sends least in rank order.
size_t bytes_sent(const Call& call, int ranks);

}  // namespace lockstep::fake_nccl::internal
