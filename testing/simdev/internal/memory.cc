// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "testing/simdev/internal/arena.h"
#include "testing/simdev/internal/device_heap.h"
#include "testing/simdev/internal/faults.h"
#include "testing/simdev/internal/ordering.h"
#include "testing/simdev/simdev.h"

namespace lockstep::simdev::internal {
namespace {

constexpr int kOrdinaryMemory = -1;

thread_local int redirect_to = kOrdinaryMemory;

// Memory may be taken and freed where nothing can be thrown.
void pend(const std::vector<std::string>& faults) {
  for (const std::string& fault : faults) {
    raise_later(fault);
  }
}

size_t offset_of(const void* device_address, int device) {
  return static_cast<const char*>(device_address) - device_base(device);
}

c10::Device as_device(int device) {
  return c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device));
}

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const int device = current_device();
    void* const memory = internal::allocate(bytes, device);
    return {memory, memory, &release, as_device(device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* destination, const void* source, size_t bytes) const override {
    if (bytes > 0) {
      std::memcpy(kernel_address(destination, 0), kernel_address(source, 0), bytes);
    }
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t /*pool*/ = {0, 0}) override {
    std::vector<std::string> faults;
    for (int device = 0; device < device_count(); ++device) {
      heap(device).trim(&faults);
    }
    pend(faults);
  }
  void recordStream(const c10::DataPtr& memory, c10::Stream stream) override {
    record_stream(memory.get(), stream);
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const HeapCounts counts = heap(device).counts();
    c10::CachingDeviceAllocator::DeviceStats stats;
    const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    for (c10::CachingAllocator::StatArray* bytes :
         {&stats.allocated_bytes, &stats.requested_bytes}) {
      (*bytes)[all].current = counts.live_bytes;
      (*bytes)[all].peak = counts.peak_bytes;
    }
    stats.num_device_alloc = counts.allocations;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override { heap(device).reset_allocations(); }
  void resetPeakStats(c10::DeviceIndex device) override { heap(device).reset_peak(); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return {heap(device).free_bytes(), heap(device).memory_bytes()};
  }
};

class HostAllocator final : public c10::Allocator {
 public:
  HostAllocator() : ordinary_(c10::GetCPUAllocator()) {}
  c10::DataPtr allocate(size_t bytes) override {
    if (redirect_to == kOrdinaryMemory) {
      return ordinary_->allocate(bytes);
    }
    void* const memory = kernel_address(internal::allocate(bytes, redirect_to), redirect_to);
    return {memory, memory, &release_kernel_address, c10::Device(c10::kCPU)};
  }
  // Memory taken raw may be freed outside the redirection it was taken in.
  c10::DeleterFnPtr raw_deleter() const override { return &release_any; }
  void copy_data(void* destination, const void* source, size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }

 private:
  static void release_any(void* memory);

  c10::Allocator* const ordinary_;
};

// Both live as long as the process: LibTorch keeps pointers to them.
DeviceAllocator& the_device_allocator() {
  static auto* const allocator = new DeviceAllocator();
  return *allocator;
}

HostAllocator& the_host_allocator() {
  static auto* const allocator = new HostAllocator();
  return *allocator;
}

void HostAllocator::release_any(void* memory) {
  if (device_of_kernel_address(memory) >= 0) {
    release_kernel_address(memory);
  } else {
    the_host_allocator().ordinary_->raw_deleter()(memory);
  }
}

}  // namespace

void* allocate(size_t bytes, int device) {
  if (bytes == 0) {
    return nullptr;
  }
  std::vector<std::string> faults;
  const size_t offset = heap(device).allocate(bytes, current_stream_number(device), &faults);
  pend(faults);
  return device_base(device) + offset;
}

void release(void* device_address) noexcept {
  if (device_address == nullptr) {
    return;
  }
  const int device = device_of_device_address(device_address);
  std::vector<std::string> faults;
  heap(device).release(offset_of(device_address, device), &faults);
  pend(faults);
}

void release_kernel_address(void* kernel_address) noexcept {
  release(device_address(kernel_address, 0));
}

void record_stream(const void* device_address, const c10::Stream& stream) {
  if (device_address == nullptr || !checking_on()) {
    return;
  }
  const int device = device_of_device_address(device_address);
  TORCH_CHECK(device >= 0, "[record_stream] expected memory of a device, got ", device_address);
  const int number = stream_number(stream);
  heap(device).with_block(offset_of(device_address, device), [number](Block& block) {
    auto& recorded = block.recorded;
    if (std::find(recorded.begin(), recorded.end(), number) == recorded.end()) {
      recorded.push_back(number);
    }
  });
}

c10::Allocator* device_allocator() { return &the_device_allocator(); }
c10::Allocator* host_allocator() { return &the_host_allocator(); }

RedirectHostAllocations::RedirectHostAllocations(int device)
    : before_(std::exchange(redirect_to, device)) {}

RedirectHostAllocations::~RedirectHostAllocations() { redirect_to = before_; }

}  // namespace lockstep::simdev::internal
