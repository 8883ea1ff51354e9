// SPDX-License-Identifier: Apache-2.0
// arena.h: the address space of the devices: one reservation that holds every device's memory
// twice, first all device addresses (no access), then all kernel addresses (read and write).
//   | simdev:0 | simdev:1 | ... | simdev:0 | simdev:1 | ... |
//   ^ device addresses          ^ kernel addresses
// A device's part is a power of two long, so a shift tells which device an address belongs to.
#pragma once

#include <cstddef>

namespace lockstep::simdev::internal {

constexpr int kMaxDevices = 16;

// Once. `bytes` per device are rounded up to a power of two; memory is committed when touched.
// A child of fork() gets none of it: it would share, not copy, the memory of its parent.
void map_arenas(int devices, size_t bytes);

size_t arena_bytes();  // of one device
char* kernel_base(int device);
char* device_base(int device);

// Gives [offset, offset + bytes) of the device's memory back to the system; it reads as zeros.
void discard_pages(int device, size_t offset, size_t bytes);

}  // namespace lockstep::simdev::internal
