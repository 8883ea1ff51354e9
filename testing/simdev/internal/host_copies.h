// SPDX-License-Identifier: Apache-2.0
// host_copies.h: copies between devices and pinned host memory that the host has not waited for.
#pragma once

#include <string>
#include <vector>

namespace lockstep::simdev::internal {

// Makes the late copies arrive that the host has waited for by now, and looks at the pinned
// sources that it may change again. Returns the faults.
std::vector<std::string> settle_host_copies();

}  // namespace lockstep::simdev::internal
