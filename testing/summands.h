// SPDX-License-Identifier: Apache-2.0
// summands: data for tests of sums over devices, and what must come out.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

#include <vector>

namespace lockstep::testing {

// A seeded random tensor on each device, each with other values.
std::vector<at::Tensor> random_on_each(c10::ArrayRef<c10::Device> devices, at::IntArrayRef sizes,
                                       at::ScalarType dtype = at::kFloat);

// inputs[0] + inputs[1] + ... by LibTorch's own additions on the CPU, one after another.
at::Tensor successive_sum(const std::vector<at::Tensor>& inputs);

}  // namespace lockstep::testing
