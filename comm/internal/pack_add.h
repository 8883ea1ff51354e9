// SPDX-License-Identifier: Apache-2.0
// pack_add: a bucket's scattered tensors of several replicas on one device, summed into a flat
// buffer by one kernel, where the device type has such a kernel.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>
#include <c10/core/Stream.h>
#include <c10/util/ArrayRef.h>

#include <vector>

#include "comm/internal/pack_add_kernel.h"

namespace lockstep::comm::internal {

// Starts the kernel on a stream whose device is the current one; null, or what went wrong.
using PackAddLaunch = const char* (*)(const PackAddTable& table, Summand kind,
                                      const c10::Stream& stream);

// From now on pack_add uses `launch` on devices of this type; null: none. Returns what it used
// until now. Threads: safe.
PackAddLaunch set_pack_add_launch(c10::DeviceType device_type, PackAddLaunch launch);

bool has_pack_add(c10::DeviceType device_type);

// Returns a fresh 1-D tensor that holds rows[0][i] + rows[1][i] + ... for i = 0, 1, ... one after
// another, each sum in the memory order of like[i], partial sums rounded to the dtype; written on
// the current stream of the tensors' device. Undefined if there is nothing to add or no kernel can:
// there is none for the device type, a tensor lies on another device than the first, has gaps or
// another memory order than like[i], or is of a dtype that is not added.
// All tensors are of one dtype, and rows[r][i] has the sizes of like[i]; neither list is empty.
at::Tensor pack_add(c10::ArrayRef<std::vector<at::Tensor>> rows, at::TensorList like);

}  // namespace lockstep::comm::internal
