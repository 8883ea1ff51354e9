// SPDX-License-Identifier: Apache-2.0
// intra_op_threads.h: how many threads operators may use, for one thread and one scope.
// Internal to parallel.
#pragma once

#include <cstdint>

namespace lockstep::parallel::internal {

// Note [Thread Counts]
// at::set_num_threads() in a worker would also change the default that threads started later
// inherit. This sets the count of the calling thread alone, in the runtimes that LibTorch uses
// (OpenMP, and MKL where it is linked), and puts the old one back.
class IntraOpThreadsGuard {
 public:
  explicit IntraOpThreadsGuard(int64_t count);
  ~IntraOpThreadsGuard();
  IntraOpThreadsGuard(const IntraOpThreadsGuard&) = delete;
  IntraOpThreadsGuard& operator=(const IntraOpThreadsGuard&) = delete;

 private:
  int openmp_before_ = 0;
  int mkl_before_ = 0;
  bool changed_ = false;
};

}  // namespace lockstep::parallel::internal
