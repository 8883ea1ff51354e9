// SPDX-License-Identifier: Apache-2.0
// native_launch.h: simulated devices for code that does not go through LibTorch's operators: a
// collectives library, a hand-written kernel. What it does is counted and checked like an operator.
#pragma once

#include <c10/core/Stream.h>
#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <optional>

namespace lockstep::simdev {

struct NativeMemory {
  int device;
  void* host_address;  // where a kernel reads and writes it; the device address faults
  size_t bytes;        // to the end of the allocation
};

// What lies at a device address: none unless it is inside a live allocation. Threads: safe.
std::optional<NativeMemory> native_memory(const void* device_address);

// The inverse of c10::Stream::native_handle(): none for what no stream of the devices gave.
// Threads: safe.
std::optional<c10::Stream> stream_of_native_handle(void* handle);

struct NativeAccess {
  const void* address;
  size_t bytes;
  bool write;
};

// Counts one kernel on the stream's device and notes its accesses. Call it before the kernel runs.
// `name` must live for ever. Accesses of no bytes are left out. Memory of other devices is welcome,
// as between peers, if it is ordered; the current device does not matter.
// Throws: RaceError for an access that nothing orders or to memory that is not live, once the kernel
//   is counted; c10::Error, also while faults are collected, for an address that is no device's, for
//   bytes past the end of an allocation, and for a stream of something else.
// Threads: safe.
void native_launch(const c10::Stream& stream, const char* name,
                   c10::ArrayRef<NativeAccess> accesses);

// What `later` is given from now on comes after all that `earlier` holds now, as between kernels
// that wait for each other. No event is counted.
// Throws: c10::Error for a stream of something else.
// Threads: safe.
void native_order(const c10::Stream& earlier, const c10::Stream& later);

}  // namespace lockstep::simdev
