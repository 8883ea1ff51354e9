// SPDX-License-Identifier: Apache-2.0
// compile_rows: what this project's headers add to a user's build.
//
// P19  compiling and linking hello_trainer.cc with the header of data_parallel, or with the
// umbrella
//      lockstep.h, against the same program with torch/torch.h alone, which is also the limit.
//      Seconds are processor seconds of the compiler, which other programs hardly change. Takes
//      minutes: left out of quick runs unless asked for.
#pragma once

#include "tools/benchmarks/session.h"

namespace lockstep::benchmarks {

void measure_compile_cost(Session& session);

}  // namespace lockstep::benchmarks
