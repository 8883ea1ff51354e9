// SPDX-License-Identifier: Apache-2.0
// per_device_checks: what all_reduce, reduce_scatter and all_gather ask of one tensor per device.
#pragma once

#include <ATen/core/Tensor.h>

#include "comm/device_collectives.h"

namespace lockstep::comm::internal {

// Throws, naming the index, unless the inputs are dense and equal in size and dtype.
void check_inputs_alike(const char* op, at::TensorList inputs);

// Throws unless `reduction` is defined for the dtype.
void check_reduction(const char* op, Reduction reduction, at::ScalarType dtype);

}  // namespace lockstep::comm::internal
