// SPDX-License-Identifier: Apache-2.0
// operators.h: the operators of the simulated devices. Implemented by operator registrations made
// at run time, so that linking them changes nothing.
#pragma once

namespace lockstep::simdev::internal {

// Once, by initialize().
void register_operators();

}  // namespace lockstep::simdev::internal
