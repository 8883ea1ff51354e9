// SPDX-License-Identifier: Apache-2.0
// guard.h: devices, streams and events as LibTorch asks for them.
#pragma once

namespace lockstep::simdev::internal {

// Once, by initialize().
void register_guard();

}  // namespace lockstep::simdev::internal
