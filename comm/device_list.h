// SPDX-License-Identifier: Apache-2.0
// device_list: turns the devices a caller names into one canonical form. Every operation of comm
// does this first; use it yourself to compare devices that users typed.
//   auto devices = lockstep::comm::normalize_devices("my_op", {c10::kCUDA, c10::kCPU});
#pragma once

#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

#include <vector>

namespace lockstep::comm {

// Returns the canonical form of `device`: an accelerator without index becomes the current device
// of its type, and `cpu` and `cpu:0` become one device without index.
// Throws:  c10::Error, prefixed with `[op]`, if the device is a CPU with an index above 0.
c10::Device normalize_device(const char* op, c10::Device device);

// Returns the canonical form of every entry, in order. A list may name one device several times:
// the entries are logical replicas, told apart by position.
// Throws:  c10::Error, prefixed with `[op]`, if the list is empty or an entry is a CPU with an
//          index above 0; the message names the position.
std::vector<c10::Device> normalize_devices(const char* op, c10::ArrayRef<c10::Device> devices);

}  // namespace lockstep::comm
