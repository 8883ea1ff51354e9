// SPDX-License-Identifier: Apache-2.0
// fallback.h: runs any operator by its CPU kernel on aliases of the device's tensors.
#pragma once

namespace torch {
class Library;
}

namespace lockstep::simdev::internal {

// `dense` and `sparse` are libraries of all namespaces ("_") on PrivateUse1 and SparsePrivateUse1.
void register_fallback(torch::Library& dense, torch::Library& sparse);

}  // namespace lockstep::simdev::internal
