// SPDX-License-Identifier: Apache-2.0
// view_kernels.h: views that LibTorch leaves to each backend; they need no alias.
#pragma once

namespace torch {
class Library;
}

namespace lockstep::simdev::internal {

// `library` is that of "aten" on PrivateUse1.
void register_view_kernels(torch::Library& library);

}  // namespace lockstep::simdev::internal
