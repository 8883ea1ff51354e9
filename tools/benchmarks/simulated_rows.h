// SPDX-License-Identifier: Apache-2.0
// simulated_rows: what simulated devices cost.
//
// S1   one operator on tensors of a few elements, where nothing but overhead shows. Ours: on a
//      simulated device; peer: the same call on CPU tensors. Cases: the operator, then "-off" or
//      "-on" for the checker. A note gives the difference in microseconds.
// S2   a training step of a convolutional network, batch 64, through DataParallel. Ours: four
//      simulated devices; peer: four CPU replicas. Cases: the checker.
//
// They initialise simulated devices, so they need a process that measures nothing else.
#pragma once

#include "tools/benchmarks/session.h"

namespace lockstep::benchmarks {

void measure_simulated_devices(Session& session);

}  // namespace lockstep::benchmarks
