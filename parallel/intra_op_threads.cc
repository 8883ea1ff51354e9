// SPDX-License-Identifier: Apache-2.0
#include "parallel/intra_op_threads.h"

#include <ATen/Parallel.h>

extern "C" {
// Of the OpenMP runtime and of MKL, if LibTorch brings them.
void omp_set_num_threads(int count) __attribute__((weak));
int omp_get_max_threads() __attribute__((weak));
int MKL_Set_Num_Threads_Local(int count) __attribute__((weak));
}

namespace lockstep::parallel::internal {

// See Note [Thread Counts].
IntraOpThreadsGuard::IntraOpThreadsGuard(int64_t count) {
  // Applies the process-wide count to this thread if nothing has done so yet.
  at::get_num_threads();
  if (omp_get_max_threads == nullptr || omp_set_num_threads == nullptr) {
    return;
  }
  openmp_before_ = omp_get_max_threads();
  if (openmp_before_ == count) {
    return;
  }
  changed_ = true;
  omp_set_num_threads(static_cast<int>(count));
  if (MKL_Set_Num_Threads_Local != nullptr) {
    mkl_before_ = MKL_Set_Num_Threads_Local(static_cast<int>(count));
  }
}

IntraOpThreadsGuard::~IntraOpThreadsGuard() {
  if (!changed_) {
    return;
  }
  omp_set_num_threads(openmp_before_);
  if (MKL_Set_Num_Threads_Local != nullptr) {
    MKL_Set_Num_Threads_Local(mkl_before_);
  }
}

}  // namespace lockstep::parallel::internal
