// SPDX-License-Identifier: Apache-2.0
// hooks.h: what LibTorch asks of a backend beyond operators, devices and streams.
#pragma once

namespace lockstep::simdev::internal {

// Once, by initialize().
void register_hooks();

}  // namespace lockstep::simdev::internal
