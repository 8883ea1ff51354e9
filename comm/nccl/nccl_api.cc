// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/nccl_api.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "comm/nccl/internal/library_search.h"

namespace lockstep::comm::nccl {
namespace {

struct CloseLibrary {
  void operator()(void* library) const { dlclose(library); }
};
using Library = std::unique_ptr<void, CloseLibrary>;

// Fills function pointers by name and remembers the names that are not there.
class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}

  template <class Function>
  void read(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
    if (function == nullptr) {
      missing_ += missing_.empty() ? name : std::string(", ") + name;
    }
  }
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

std::string read_all(void* library, NcclApi& api) {
  Symbols symbols(library);
  symbols.read("ncclGetVersion", api.get_version);
  symbols.read("ncclGetUniqueId", api.get_unique_id);
  symbols.read("ncclGetErrorString", api.get_error_string);
  symbols.read("ncclGetLastError", api.get_last_error);
  symbols.read("ncclCommInitAll", api.comm_init_all);
  symbols.read("ncclCommInitRankConfig", api.comm_init_rank_config);
  symbols.read("ncclCommFinalize", api.comm_finalize);
  symbols.read("ncclCommDestroy", api.comm_destroy);
  symbols.read("ncclCommAbort", api.comm_abort);
  symbols.read("ncclCommGetAsyncError", api.comm_get_async_error);
  symbols.read("ncclCommCount", api.comm_count);
  symbols.read("ncclCommCuDevice", api.comm_cu_device);
  symbols.read("ncclCommUserRank", api.comm_user_rank);
  symbols.read("ncclRedOpCreatePreMulSum", api.red_op_create_pre_mul_sum);
  symbols.read("ncclRedOpDestroy", api.red_op_destroy);
  symbols.read("ncclAllReduce", api.all_reduce);
  symbols.read("ncclReduce", api.reduce);
  symbols.read("ncclBroadcast", api.broadcast);
  symbols.read("ncclAllGather", api.all_gather);
  symbols.read("ncclReduceScatter", api.reduce_scatter);
  symbols.read("ncclGroupStart", api.group_start);
  symbols.read("ncclGroupEnd", api.group_end);
  return symbols.missing();
}

std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::unique_ptr<const NcclApi> load(const std::string& path) {
  // Its symbols stay its own (RTLD_LOCAL): two libraries of NCCL may be loaded side by side.
  Library library(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
  // Asked for before anything else may replace the text.
  const char* const reason = library == nullptr ? dlerror() : nullptr;
  TORCH_CHECK(library != nullptr, "[load_nccl] expected a shared library at '", path,
              "', got: ", reason == nullptr ? "no reason" : reason);

  auto api = std::make_unique<NcclApi>();
  const std::string missing = read_all(library.get(), *api);
  TORCH_CHECK(missing.empty(), "[load_nccl] expected NCCL at '", path,
              "', got a library without: ", missing);

  const Result result = api->get_version(&api->version);
  TORCH_CHECK(result == Result::kSuccess, "[load_nccl] expected '", path,
              "' to tell its version, got: ", api->get_error_string(result));
  TORCH_CHECK(api->version >= kOldestVersion, "[load_nccl] expected NCCL ",
              version_text(kOldestVersion), " or newer at '", path, "', got ",
              version_text(api->version));
  api->path = path;
  library.release();  // NCCL's threads may run in it until the process ends
  return api;
}

}  // namespace

const NcclApi& load_nccl(const std::string& path) {
  struct Loaded {
    std::mutex mutex;
    std::map<std::string, std::unique_ptr<const NcclApi>> apis;
  };
  // Never destroyed: communicators that outlive main() refer to the tables.
  static auto* const loaded = new Loaded();
  const std::lock_guard<std::mutex> lock(loaded->mutex);
  std::unique_ptr<const NcclApi>& api = loaded->apis[path];
  if (api == nullptr) {
    api = load(path);
  }
  return *api;
}

const NcclApi* find_nccl(std::string* reason) {
  static const auto* const found = new internal::SearchResult(internal::search_nccl(
      internal::nccl_candidates(std::getenv("LOCKSTEP_NCCL"), internal::libtorch_folder())));
  if (reason != nullptr && found->api == nullptr) {
    *reason = found->reason;
  }
  return found->api;
}

}  // namespace lockstep::comm::nccl
