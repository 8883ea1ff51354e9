// SPDX-License-Identifier: Apache-2.0
// fault_handler.h: says which device's memory the host touched before the process ends for it.
#pragma once

namespace lockstep::simdev::internal {

// Once, after map_arenas(). The signal then goes where it would have gone without.
void install_fault_handler();

}  // namespace lockstep::simdev::internal
