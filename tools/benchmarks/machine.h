// SPDX-License-Identifier: Apache-2.0
// machine: what a reader must know to judge a figure: commit, build, libraries, processor.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::benchmarks {

// Facts in the order of printing. What cannot be found out is "unknown".
std::vector<std::pair<std::string, std::string>> machine_facts();

// The number of cores this process may use.
int available_cores();

// Whether this program was compiled with optimisation; times of one that was not say little.
bool is_optimised_build();

}  // namespace lockstep::benchmarks
