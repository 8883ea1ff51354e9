// SPDX-License-Identifier: Apache-2.0
// generator.h: random generators of the devices: CPU generators behind a face of the device.
#pragma once

#include <ATen/core/Generator.h>

namespace lockstep::simdev::internal {

const at::Generator& default_generator(int device);
at::Generator make_generator(int device);
// The CPU generator that draws for a device's generator; CPU kernels insist on one.
at::Generator host_generator(const at::Generator& device_generator);

}  // namespace lockstep::simdev::internal
