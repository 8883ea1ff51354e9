// SPDX-License-Identifier: Apache-2.0
// Compiled twice, under two names of SUM, with and without USE_CUDA.
#include <ATen/ops/ones.h>

#include "comm/reduce_add.h"

at::Tensor SUM() { return lockstep::comm::reduce_add({at::ones({2}), at::ones({2})}, c10::kCPU); }
