// SPDX-License-Identifier: Apache-2.0
// memory.h: each device's arena, mapped twice: at the device address, which tensors carry and which
// faults when the host touches it, and at the kernel address, which operators use.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <cstddef>

namespace lockstep::simdev::internal {

// Null stays null. No check that the address is of the device: both are on the path of every
// operator.
void* kernel_address(const void* device_address, int device);
void* device_address(const void* kernel_address, int device);

// The device that owns the address, or -1.
int device_of_device_address(const void* address);
int device_of_kernel_address(const void* address);

// A block on the device's current stream; its device address. Null for 0 bytes.
// Throws: c10::OutOfMemoryError naming device, bytes asked for and bytes free.
void* allocate(size_t bytes, int device);
void release(void* device_address) noexcept;
// The same for a block known by its kernel address, which owns it.
void release_kernel_address(void* kernel_address) noexcept;

// Keeps the block from reuse until what `stream` was given so far is done.
void record_stream(const void* device_address, const c10::Stream& stream);

// LibTorch's allocator of the devices: makes blocks on the current device.
c10::Allocator* device_allocator();
// LibTorch's CPU allocator while simdev is in use: ordinary memory, except within a
// RedirectHostAllocations, where it makes blocks of that device and returns kernel addresses.
c10::Allocator* host_allocator();

class RedirectHostAllocations {
 public:
  explicit RedirectHostAllocations(int device);
  ~RedirectHostAllocations();
  RedirectHostAllocations(const RedirectHostAllocations&) = delete;
  RedirectHostAllocations& operator=(const RedirectHostAllocations&) = delete;

 private:
  const int before_;
};

bool is_pinned(const void* host_address);

}  // namespace lockstep::simdev::internal
