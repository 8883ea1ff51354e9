// SPDX-License-Identifier: Apache-2.0
// replica_sync_rows: bringing two CPU replicas in line with a module.
//
// P3            after every parameter was changed in place, which is not timed
// P3-unchanged  when nothing was changed
//
// Cases: n parameters of 16 floats, and 100 linear layers of 64x64; "shared" replicas use the
// module's own storage, "separate" ones hold copies. The peer is LibTorch's replicate, which makes
// new replicas in place of the last ones; the limit is memcpy of the parameters' bytes. After each
// synchronisation, of either side, replicas are compared with the module bit for bit.
#pragma once

#include "tools/benchmarks/session.h"

namespace lockstep::benchmarks {

void measure_replica_sync(Session& session);

}  // namespace lockstep::benchmarks
