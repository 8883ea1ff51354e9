// SPDX-License-Identifier: Apache-2.0
// library_search.h: where an NCCL library may lie, and the first one that loads.
#pragma once

#include <string>
#include <vector>

#include "comm/nccl/nccl_api.h"

namespace lockstep::comm::nccl::internal {

// The folder in which LibTorch's library really lies, symbolic links followed; empty if LibTorch
// is not a shared library of this process.
std::string libtorch_folder();

// Paths in the order to try. `given`, if not null or empty, stands alone.
std::vector<std::string> nccl_candidates(const char* given, const std::string& libtorch_folder);

struct SearchResult {
  const NcclApi* api = nullptr;
  std::string reason;  // if there is none: each candidate, and why it was not taken
};
SearchResult search_nccl(const std::vector<std::string>& candidates);

}  // namespace lockstep::comm::nccl::internal
