// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/process_settings.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <malloc.h>

namespace lockstep::benchmarks {
namespace {

constexpr int kMmapThresholdBytes = 1 << 30;
constexpr int kTrimThresholdBytes = 2000000000;  // 2 GB, as far as an int goes
constexpr int kTopPadBytes = 256 << 20;

// Once; whether the allocator took the settings. Others than glibc's, a sanitizer's among them, take
// none.
bool set_up_allocator() {
  static const bool taken = mallopt(M_MMAP_THRESHOLD, kMmapThresholdBytes) == 1 &&
                            mallopt(M_TRIM_THRESHOLD, kTrimThresholdBytes) == 1 &&
                            mallopt(M_TOP_PAD, kTopPadBytes) == 1;
  return taken;
}

}  // namespace

void set_up_process() {
  flush_denormals_on_this_thread();
  set_up_allocator();
  at::set_num_threads(1);
}

void flush_denormals_on_this_thread() {
  TORCH_CHECK(at::Context::setFlushDenormal(true),
              "[flush_denormals_on_this_thread] expected a CPU that can flush denormals");
}

std::string describe_allocator() {
  if (dlsym(RTLD_DEFAULT, "mallctl") != nullptr) return "jemalloc";
  if (dlsym(RTLD_DEFAULT, "MallocExtension_ReleaseFreeMemory") != nullptr) return "tcmalloc";
  if (!set_up_allocator()) return "an allocator that takes no settings";
  return std::string("glibc ") + gnu_get_libc_version() +
         ", M_MMAP_THRESHOLD 1 GB, M_TRIM_THRESHOLD 2 GB, M_TOP_PAD 256 MB";
}

}  // namespace lockstep::benchmarks
