// SPDX-License-Identifier: Apache-2.0
// group_main: the main function of a program that measures one group of rows. The driver,
// benchmarks.cc, starts it; by hand it takes the same flags.
#pragma once

#include <functional>

#include "tools/benchmarks/session.h"

namespace lockstep::benchmarks {

// Reads the flags, sets up the process, calls `measure`, and writes the report where --json says.
// Returns the exit code: 1 if a result was wrong or something was thrown.
int group_main(int argc, char** argv, const char* usage,
               const std::function<void(Session&)>& measure);

}  // namespace lockstep::benchmarks
