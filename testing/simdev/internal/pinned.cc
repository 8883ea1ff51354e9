// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/pinned.h"

#include <c10/core/impl/alloc_cpu.h>

#include <iterator>
#include <map>
#include <mutex>

#include "testing/simdev/internal/memory.h"

namespace lockstep::simdev::internal {
namespace {

struct PinnedRanges {
  std::mutex mutex;
  std::map<const char*, const char*> ends;  // by beginning
};

// Never destroyed: pinned tensors may be freed while the process ends.
PinnedRanges& ranges() {
  static auto* const all = new PinnedRanges();
  return *all;
}

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* const memory = c10::alloc_cpu(bytes);
    if (memory != nullptr) {
      const auto* const begin = static_cast<const char*>(memory);
      const std::lock_guard<std::mutex> lock(ranges().mutex);
      ranges().ends[begin] = begin + bytes;
    }
    return {memory, memory, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* destination, const void* source, size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }

 private:
  static void release(void* memory) {
    {
      const std::lock_guard<std::mutex> lock(ranges().mutex);
      ranges().ends.erase(static_cast<const char*>(memory));
    }
    c10::free_cpu(memory);
  }
};

}  // namespace

c10::Allocator* pinned_allocator() {
  static auto* const allocator = new PinnedAllocator();
  return allocator;
}

bool is_pinned(const void* host_address) {
  const auto* const address = static_cast<const char*>(host_address);
  const std::lock_guard<std::mutex> lock(ranges().mutex);
  const auto after = ranges().ends.upper_bound(address);
  return after != ranges().ends.begin() && address < std::prev(after)->second;
}

}  // namespace lockstep::simdev::internal
