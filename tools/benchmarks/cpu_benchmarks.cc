// SPDX-License-Identifier: Apache-2.0
// The rows that run on CPU replicas in one process.
#include "tools/benchmarks/compile_rows.h"
#include "tools/benchmarks/data_parallel_rows.h"
#include "tools/benchmarks/gradient_node_rows.h"
#include "tools/benchmarks/group_main.h"
#include "tools/benchmarks/replica_sync_rows.h"

int main(int argc, char** argv) {
  using namespace lockstep::benchmarks;
  return group_main(argc, argv, "Measures the rows that run on CPU replicas.",
                    [](Session& session) {
                      measure_replica_sync(session);
                      measure_gradient_nodes(session);
                      measure_data_parallel(session);
                      measure_compile_cost(session);
                    });
}
