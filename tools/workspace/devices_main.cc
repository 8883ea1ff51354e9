// SPDX-License-Identifier: Apache-2.0
// Prints what this build of a program sees, without calling a line of LibTorch's CUDA library.

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdio>

int main() {
  const bool cuda = c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA);
  const int devices =
      cuda ? c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA)->deviceCount() : 0;
  std::printf("CUDA %s, %d devices\n", cuda ? "yes" : "no", devices);
}
