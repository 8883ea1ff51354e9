// SPDX-License-Identifier: Apache-2.0
// aliasing.h: the same memory seen from both sides: as CPU tensors at the kernel address, which CPU
// kernels take, and as device tensors over what such kernels made. Nothing is copied.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

namespace lockstep::simdev::internal {

// The address, without the questions LibTorch asks before it gives one away.
void* raw_address(const c10::Storage& storage);

// A CPU tensor over the memory of a dense device tensor, with its dtype, sizes, strides, offset and
// lazy bits. It does not own the memory, and grows within the device's arena.
at::Tensor host_alias(const at::Tensor& tensor, int device);
// The same over the storage of an alias made before, of another view.
at::Tensor host_alias(const at::Tensor& tensor, const at::Tensor& sibling);
// Keeps an alias for the next host_alias of the thread if nobody else holds it: to make one anew
// costs as much as a small operator.
void recycle(at::Tensor alias);

// The device's storage for what a CPU kernel made, and which keeps it alive. Memory that does not
// lie in the device's arena is copied there.
c10::Storage adopt(const c10::Storage& host_storage, int device);

// A device tensor over the storage, with dtype, sizes, strides, offset and lazy bits of `like`.
at::Tensor device_tensor(c10::Storage storage, const at::Tensor& like);

}  // namespace lockstep::simdev::internal
