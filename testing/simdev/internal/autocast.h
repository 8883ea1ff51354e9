// SPDX-License-Identifier: Apache-2.0
// autocast.h: automatic mixed precision, with LibTorch's lists of operators for devices.
#pragma once

namespace torch {
class Library;
}

namespace lockstep::simdev::internal {

// `library` is that of "aten" on AutocastPrivateUse1.
void register_autocast_kernels(torch::Library& library);

}  // namespace lockstep::simdev::internal
