// SPDX-License-Identifier: Apache-2.0
// simdev.h: several simulated devices in one process, on LibTorch's PrivateUse1 key, so that a bug
// that needs two accelerators to show fails on a machine without one. See README.md.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::simdev {

struct Options {
  int devices = 4;                             // 2 to 16
  size_t memory_bytes = size_t{1} << 30;       // per device; committed when touched
  size_t quarantine_bytes = size_t{16} << 20;  // freed memory kept away from reuse, per device
  bool check = true;                           // the checker of checker.h
};

// Registers the devices with LibTorch as "simdev". Call it once, at the start of main() or of the
// first test, before the first backward of the process: LibTorch fixes the number of its autograd
// threads then. Linking the library without this call changes nothing.
// A second call with the same options does nothing.
// Throws: c10::Error for a second call with other options, a count out of range, no memory, an
//   address space that cannot be reserved, or if another PrivateUse1 backend is registered.
// Threads: not safe; no other thread may use LibTorch meanwhile.
void initialize(const Options& options = {});

bool is_initialized();

// The device of that index. Throws: c10::Error if there is none.
c10::Device device(int index);
int device_count();

// The devices of these indices, and those of index 0 to count - 1. Throws: as device() does.
std::vector<c10::Device> devices(c10::ArrayRef<int> indices);
std::vector<c10::Device> first_devices(int count);

}  // namespace lockstep::simdev
