// SPDX-License-Identifier: Apache-2.0
// copy_kernels.h: copies within a device, between devices and to and from the host, ordered among
// streams as CUDA orders them.
#pragma once

namespace torch {
class Library;
}

namespace lockstep::simdev::internal {

// `library` is that of "aten" on PrivateUse1.
void register_copy_kernels(torch::Library& library);

}  // namespace lockstep::simdev::internal
