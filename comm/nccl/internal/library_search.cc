// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/internal/library_search.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <link.h>

#include <filesystem>
#include <system_error>

namespace lockstep::comm::nccl::internal {

std::string libtorch_folder() {
  // By name, not by the address of one of its functions: a program's own stub may stand for it.
  void* const library = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) {
    return "";
  }
  const link_map* entry = nullptr;
  const bool known = dlinfo(library, RTLD_DI_LINKMAP, &entry) == 0;
  std::error_code error;
  const auto path = known ? std::filesystem::canonical(entry->l_name, error) : "";
  dlclose(library);
  return path.parent_path().string();
}

std::vector<std::string> nccl_candidates(const char* given, const std::string& libtorch_folder) {
  if (given != nullptr && *given != '\0') {
    return {given};
  }
  std::vector<std::string> candidates;
  if (!libtorch_folder.empty()) {
    // pip installs torch/lib and nvidia/nccl/lib into one folder.
    const auto site = std::filesystem::path(libtorch_folder).parent_path().parent_path();
    candidates.push_back((site / "nvidia/nccl/lib/libnccl.so.2").string());
  }
  candidates.push_back("libnccl.so.2");
  return candidates;
}

SearchResult search_nccl(const std::vector<std::string>& candidates) {
  SearchResult result;
  for (const std::string& candidate : candidates) {
    try {
      return {&load_nccl(candidate), ""};
    } catch (const c10::Error& error) {
      result.reason += result.reason.empty() ? "no NCCL: " : "; ";
      result.reason += error.what_without_backtrace();
    }
  }
  return result;
}

}  // namespace lockstep::comm::nccl::internal
