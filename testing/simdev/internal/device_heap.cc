// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/device_heap.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "testing/simdev/internal/arena.h"
#include "testing/simdev/internal/messages.h"
#include "testing/simdev/internal/ordering.h"
#include "testing/simdev/internal/poison.h"

namespace lockstep::simdev::internal {
namespace {

// What a block counts in the quarantine, so that tiny ones do not fill it by the million.
size_t quarantine_weight(const Block& block) { return std::max<size_t>(block.size, 1024); }

// Beyond it the oldest is forgotten: its stream may never allocate again.
constexpr size_t kMaxOrphans = 1024;

std::vector<std::unique_ptr<DeviceHeap>>& heaps() {
  // Never destroyed: tensors may be freed while the process ends.
  static auto* const all = new std::vector<std::unique_ptr<DeviceHeap>>();
  return *all;
}

}  // namespace

DeviceHeap& heap(int device) { return *heaps()[device]; }

void make_heaps(int devices, DeviceHeap::Limits limits) {
  for (int device = 0; device < devices; ++device) {
    heaps().push_back(std::make_unique<DeviceHeap>(device, limits));
  }
}

DeviceHeap::DeviceHeap(int device, Limits limits)
    : device_(device), limits_(limits), pool_(arena_bytes()) {}

size_t DeviceHeap::allocate(size_t bytes, int stream, std::vector<std::string>* faults) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const size_t free = limits_.memory_bytes - counts_.live_bytes;
  TORCH_CHECK_WITH(OutOfMemoryError, bytes <= free, "[simdev] simdev:", device_,
                   " is out of memory: asked for ", bytes, " bytes, ", free, " of ",
                   limits_.memory_bytes, " bytes are free");
  const size_t size = block_size(bytes);
  Block* const block = take(size, stream, faults);
  block->asked = bytes;
  if (checking_on()) {
    check_reuse(size, stream, faults);
    // The memory may have been used on its stream before: other streams have to wait for it.
    const uint64_t now = time_of_stream(stream);
    if (now > 0) {
      block->accesses.add({Footprint(0, size), stream, now, /*write=*/true, nullptr, {}});
    }
  }
  ++counts_.allocations;
  counts_.live_bytes += static_cast<int64_t>(bytes);
  counts_.peak_bytes = std::max(counts_.peak_bytes, counts_.live_bytes);
  return block->offset;
}

Block* DeviceHeap::take(size_t size, int stream, std::vector<std::string>* faults) {
  Block* block = pool_.take(size, stream);
  if (block == nullptr) {
    trim_locked(faults);
    block = pool_.take(size, stream);
  }
  TORCH_CHECK_WITH(OutOfMemoryError, block != nullptr, "[simdev] simdev:", device_,
                   " is out of memory: asked for ", size, " bytes, ",
                   limits_.memory_bytes - counts_.live_bytes,
                   " bytes are free, but in smaller pieces");
  return block;
}

void DeviceHeap::release(size_t offset, std::vector<std::string>* faults) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Block* const block = pool_.at(offset);
  TORCH_INTERNAL_ASSERT(block != nullptr && block->state == BlockState::kLive,
                        "[simdev] freed memory that is not allocated");
  counts_.live_bytes -= static_cast<int64_t>(block->asked);
  if (!checking_on()) {
    block->poisoned = false;
    block->accesses.clear();
    block->recorded.clear();
    pool_.give(block);
    return;
  }
  {
    const ClockView known(block->stream);
    std::vector<Access> uses = block->accesses.unknown_to(known, block->recorded);
    if (!uses.empty()) {
      if (orphans_.size() >= kMaxOrphans) {
        orphans_.erase(orphans_.begin());
      }
      orphans_.push_back({block->size, block->asked, block->stream, std::move(uses)});
    }
  }
  block->recorded.clear();
  block->state = BlockState::kQuarantined;
  poison(kernel_base(device_) + block->offset, block->size);
  block->poisoned = true;
  quarantine_.push_back(block);
  quarantined_bytes_ += quarantine_weight(*block);
  empty_quarantine(limits_.quarantine_bytes, faults);
}

// The quarantine delays reuse, so what matters is whether this allocation could have got the
// memory of a freed block that is still in use.
void DeviceHeap::check_reuse(size_t size, int stream, std::vector<std::string>* faults) {
  if (orphans_.empty()) {
    return;
  }
  std::vector<std::pair<size_t, Access>> in_use;
  {
    const ClockView known(stream);
    const auto is_done = [&](Orphan& orphan) {
      if (orphan.stream != stream) {
        return false;
      }
      auto& uses = orphan.uses;
      uses.erase(
          std::remove_if(uses.begin(), uses.end(),
                         [&](const Access& use) { return known.knows(use.stream, use.time); }),
          uses.end());
      if (!uses.empty() && orphan.size >= size) {
        in_use.emplace_back(orphan.asked, uses.front());
        return true;
      }
      return uses.empty();
    };
    orphans_.erase(std::remove_if(orphans_.begin(), orphans_.end(), is_done), orphans_.end());
  }
  for (const auto& [bytes, use] : in_use) {
    faults->push_back(reuse_message(device_, bytes, stream, use));
  }
}

void DeviceHeap::empty_quarantine(size_t until_bytes, std::vector<std::string>* faults) {
  while (quarantined_bytes_ > until_bytes) {
    Block* const block = quarantine_.front();
    quarantine_.pop_front();
    quarantined_bytes_ -= quarantine_weight(*block);
    check_poison(*block, faults);
    block->poisoned = false;
    block->accesses.clear();
    pool_.give(block);
  }
}

void DeviceHeap::check_poison(const Block& block, std::vector<std::string>* faults) const {
  const size_t change = first_change(kernel_base(device_) + block.offset, block.size);
  if (block.poisoned && change < block.size) {
    faults->push_back(
        written_after_free_message(device_, block.asked, change, block.accesses.last()));
  }
}

void DeviceHeap::trim(std::vector<std::string>* faults) {
  const std::lock_guard<std::mutex> lock(mutex_);
  trim_locked(faults);
}

// A real device would wait for all its work here, so that no freed block is in use afterwards.
void DeviceHeap::trim_locked(std::vector<std::string>* faults) {
  empty_quarantine(0, faults);
  orphans_.clear();
  pool_.disown_all(
      [this](const Block& block) { discard_pages(device_, block.offset, block.size); });
}

void DeviceHeap::forget_history(std::vector<std::string>* faults) {
  const std::lock_guard<std::mutex> lock(mutex_);
  empty_quarantine(0, faults);
  orphans_.clear();
  for (Block* block = pool_.first(); block != nullptr; block = block->after) {
    block->accesses.clear();
  }
}

HeapCounts DeviceHeap::counts() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return counts_;
}

void DeviceHeap::reset_peak() {
  const std::lock_guard<std::mutex> lock(mutex_);
  counts_.peak_bytes = counts_.live_bytes;
}

void DeviceHeap::reset_allocations() {
  const std::lock_guard<std::mutex> lock(mutex_);
  counts_.allocations = 0;
}

size_t DeviceHeap::free_bytes() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return limits_.memory_bytes - counts_.live_bytes;
}

}  // namespace lockstep::simdev::internal
