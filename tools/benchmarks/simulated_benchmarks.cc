// SPDX-License-Identifier: Apache-2.0
// The rows that need simulated devices. Their process measures nothing else: LibTorch's hooks are
// set once and for all.
#include "tools/benchmarks/group_main.h"
#include "tools/benchmarks/simulated_rows.h"

int main(int argc, char** argv) {
  using namespace lockstep::benchmarks;
  return group_main(argc, argv, "Measures the rows that run on simulated devices.",
                    measure_simulated_devices);
}
