// SPDX-License-Identifier: Apache-2.0
// gradient_node_rows: what it costs to bring the gradients of two replicas back to a module.
//
// P18  from the 2n replica parameters, of 16 floats, to the n originals. Ours: one node for the
//      whole call (autograd_fns::broadcast). Peer: the graph that LibTorch's replicate makes, one
//      ReduceAdd per parameter. Limit: one node that has its results ready, so that only the engine
//      remains. Cases: "n1000" by backward(), which accumulates into `.grad`, and "n1000-captured"
//      by grad(), which does not and so shows more of the nodes.
#pragma once

#include "tools/benchmarks/session.h"

namespace lockstep::benchmarks {

void measure_gradient_nodes(Session& session);

}  // namespace lockstep::benchmarks
