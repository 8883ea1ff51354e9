// SPDX-License-Identifier: Apache-2.0
// table: a Report as text for people: facts and notes as `#` lines, then one line a row.
#pragma once

#include <string>

#include "tools/benchmarks/row.h"

namespace lockstep::benchmarks {

std::string format_table(const Report& report);

}  // namespace lockstep::benchmarks
