// SPDX-License-Identifier: Apache-2.0
// data_parallel_rows: a training step on two CPU replicas, nine networks.
//
// P1a             class DataParallel against LibTorch's data_parallel
// P1a-functional  the function data_parallel against the same
// P2              class DataParallel against one device with one thread
// P2b             class DataParallel against one device that uses every core inside operators
//
// A step is zero_grad, forward, loss, backward. The limit is two independent steps on half the
// batch at the same time, one a core. LibTorch's side is run with one thread in all and with one a
// replica; the faster counts.
#pragma once

#include "tools/benchmarks/session.h"

namespace lockstep::benchmarks {

void measure_data_parallel(Session& session);

}  // namespace lockstep::benchmarks
