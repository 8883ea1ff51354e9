// SPDX-License-Identifier: Apache-2.0
// rank_set.h: communicators over simulated devices in the words of tests of the library.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "comm/nccl/nccl_types.h"

namespace lockstep::fake_nccl {

using comm::nccl::CommHandle;
using comm::nccl::DataType;
using comm::nccl::RedOp;
using comm::nccl::Result;
using comm::nccl::StreamHandle;

enum class Mode { kBlocking, kNonBlocking };

// Asks until the communicator is not in progress any more.
Result wait(CommHandle comm);

// Makes a call for each rank in one group.
Result grouped(int ranks, const std::function<Result(int rank)>& call);

// Rank i is device i. What is left at the end is destroyed, or aborted after an error.
class RankSet {
 public:
  explicit RankSet(int ranks, Mode mode = Mode::kBlocking);
  ~RankSet();
  RankSet(const RankSet&) = delete;
  RankSet& operator=(const RankSet&) = delete;

  int size() const { return static_cast<int>(comms_.size()); }
  CommHandle operator[](int rank) const { return comms_[rank]; }
  // The communicator is gone: the set leaves it alone.
  CommHandle release(int rank);

 private:
  std::vector<CommHandle> comms_;
};

// The current stream of device `rank`.
StreamHandle stream(int rank);

DataType dtype_of(const at::Tensor& tensor);

// What rank i holds: `make(i)` on device i.
std::vector<at::Tensor> on_devices(int ranks, const std::function<at::Tensor(int)>& make);

// One rank's call, on its current stream, with the tensor's dtype; the count is that of NCCL's
// argument. Out of place, but for what is given twice.
Result all_reduce(const RankSet& ranks, int rank, const at::Tensor& send, const at::Tensor& recv,
                  RedOp op = RedOp::kSum);
Result reduce(const RankSet& ranks, int rank, const at::Tensor& send, const at::Tensor& recv,
              int root, RedOp op = RedOp::kSum);
Result broadcast(const RankSet& ranks, int rank, const at::Tensor& send, const at::Tensor& recv,
                 int root);
Result all_gather(const RankSet& ranks, int rank, const at::Tensor& send, const at::Tensor& recv);
Result reduce_scatter(const RankSet& ranks, int rank, const at::Tensor& send,
                      const at::Tensor& recv, RedOp op = RedOp::kSum);

}  // namespace lockstep::fake_nccl
