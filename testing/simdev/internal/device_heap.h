// SPDX-License-Identifier: Apache-2.0
// device_heap.h: the memory of one device: its limit, its counts, and what keeps freed memory from
// being used wrongly. Threads: safe.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "testing/simdev/internal/block_pool.h"

namespace lockstep::simdev::internal {

struct HeapCounts {
  int64_t live_bytes = 0;
  int64_t peak_bytes = 0;
  int64_t allocations = 0;
};

class DeviceHeap {
 public:
  struct Limits {
    size_t memory_bytes;
    size_t quarantine_bytes;
  };
  DeviceHeap(int device, Limits limits);

  // Offsets are from the beginning of the device's arena. Faults that are found are appended.
  // Throws: c10::OutOfMemoryError.
  size_t allocate(size_t bytes, int stream, std::vector<std::string>* faults);
  void release(size_t offset, std::vector<std::string>* faults);

  // Calls use(Block&) for the block that holds that byte, whatever its state; it cannot change
  // meanwhile.
  template <class Use>
  auto with_block(size_t offset, Use use) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Block* const block = pool_.at(offset);
    return use(block != nullptr ? *block : *pool_.around(offset));
  }

  // Gives unused memory back to the system.
  void trim(std::vector<std::string>* faults);
  // Looks at all freed memory, and forgets who used which memory.
  void forget_history(std::vector<std::string>* faults);

  HeapCounts counts();
  void reset_peak();
  void reset_allocations();
  size_t free_bytes();
  size_t memory_bytes() const { return limits_.memory_bytes; }

 private:
  // A freed block that streams other than its own may still use.
  struct Orphan {
    size_t size;
    size_t asked;
    int stream;
    std::vector<Access> uses;
  };

  Block* take(size_t size, int stream, std::vector<std::string>* faults);
  void check_reuse(size_t size, int stream, std::vector<std::string>* faults);
  void empty_quarantine(size_t until_bytes, std::vector<std::string>* faults);
  void check_poison(const Block& block, std::vector<std::string>* faults) const;
  void trim_locked(std::vector<std::string>* faults);

  const int device_;
  const Limits limits_;
  std::mutex mutex_;
  BlockPool pool_;
  std::deque<Block*> quarantine_;
  size_t quarantined_bytes_ = 0;
  std::vector<Orphan> orphans_;
  HeapCounts counts_;
};

// Of the devices, made by make_heaps().
DeviceHeap& heap(int device);
void make_heaps(int devices, DeviceHeap::Limits limits);

}  // namespace lockstep::simdev::internal
