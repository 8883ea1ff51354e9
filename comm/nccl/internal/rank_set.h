// SPDX-License-Identifier: Apache-2.0
// rank_set: the ranks of one communicator in this process, and what NCCL is asked for all of them.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <functional>
#include <vector>

#include "comm/errors.h"
#include "comm/nccl/internal/stop_signal.h"
#include "comm/nccl/nccl_api.h"

namespace lockstep::comm::nccl::internal {

// Rank i is devices[i]. After an exception the ranks are good for abort() only.
// Threads: one at a time, but for request_stop().
class RankSet {
 public:
  using Call = std::function<Result(const NcclApi&, CommHandle, int rank)>;

  RankSet(const NcclApi& nccl, std::vector<c10::Device> devices, std::chrono::milliseconds timeout);

  // Makes all ranks. Throws: NcclError, TimeoutError; then there are none.
  void make();

  // Makes `call` for every rank, within one group, and waits until NCCL has taken it.
  // Throws: NcclError, TimeoutError, and what `call` throws.
  void run_group(const char* op, const Call& call);

  // Throws: NcclError if a rank has met an error.
  void check_health(const char* op);

  // Ends all ranks once what they were given is done.
  void finish(const char* op);
  // Ends all ranks at once.
  void abort() noexcept;

  // Makes the wait of another thread, if there is one, throw NcclError.
  void request_stop() { stop_.request(); }

  const std::vector<c10::Device>& devices() const { return devices_; }

 private:
  void start_all();
  void wait(const char* op);
  std::vector<int> ranks_in_progress(const char* op) const;
  NcclError group_error(const char* op, Result result) const;
  NcclError rank_error(const char* op, const char* call, Result result, int rank) const;
  TimeoutError timeout_error(const char* op, const std::vector<int>& ranks) const;

  const NcclApi& nccl_;
  const std::vector<c10::Device> devices_;
  const std::chrono::milliseconds timeout_;
  std::vector<CommHandle> handles_;  // null: not made, or ended
  StopSignal stop_;
};

}  // namespace lockstep::comm::nccl::internal
