// SPDX-License-Identifier: Apache-2.0
// checks: argument checks and choices that several verbs of comm share.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

#include "comm/device_collectives.h"

namespace lockstep::comm::internal {

// Returns `given`, or the default engine for the first accelerator among `home` and `others`, the
// devices of `tensors` in the second form.
DeviceCollectives& choose_collectives(DeviceCollectives* given, c10::Device home,
                                      c10::ArrayRef<c10::Device> others);
DeviceCollectives& choose_collectives(DeviceCollectives* given, c10::Device home,
                                      at::TensorList tensors);

// Throws, naming `role` and `index`, unless `tensor` is defined.
void check_defined(const char* op, const char* role, const at::Tensor& tensor, int64_t index);

// Throws, naming `role` and `index`, unless `tensor` is defined, strided and not quantized.
void check_dense(const char* op, const char* role, const at::Tensor& tensor, int64_t index);

// Throws, naming `role` and `index`, unless `tensor` is as check_dense asks or a sparse COO tensor.
void check_dense_or_sparse(const char* op, const char* role, const at::Tensor& tensor,
                           int64_t index);

// Throws, naming `index`, if writing `output` would change part of `input` or if elements of
// `output` share memory. An output with exactly the memory of `input` passes; see same_memory.
void check_writable(const char* op, const at::Tensor& output, const at::Tensor& input,
                    int64_t index);

// True if the two are the same elements in the same places.
bool same_memory(const at::Tensor& a, const at::Tensor& b);

// Returns `dim` counted from the front. Throws, naming the valid range, if it is outside it.
int64_t wrap_dim(const char* op, int64_t dim, int64_t ndim);

}  // namespace lockstep::comm::internal
