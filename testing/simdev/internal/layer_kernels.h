// SPDX-License-Identifier: Apache-2.0
// layer_kernels.h: layers that LibTorch leaves to each backend: convolution and dropout.
#pragma once

namespace torch {
class Library;
}

namespace lockstep::simdev::internal {

// `library` is that of "aten" on PrivateUse1.
void register_layer_kernels(torch::Library& library);

}  // namespace lockstep::simdev::internal
