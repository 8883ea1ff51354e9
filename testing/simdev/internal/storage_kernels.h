// SPDX-License-Identifier: Apache-2.0
// storage_kernels.h: operators that make, resize and share the memory of device tensors.
#pragma once

namespace torch {
class Library;
}

namespace lockstep::simdev::internal {

// `library` is that of "aten" on PrivateUse1.
void register_storage_kernels(torch::Library& library);

}  // namespace lockstep::simdev::internal
