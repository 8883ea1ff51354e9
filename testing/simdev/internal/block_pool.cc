// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/block_pool.h"

namespace lockstep::simdev::internal {
namespace {

constexpr size_t kLargestSmall = size_t{32} << 10;
constexpr size_t kGranulesPerChunk = 1024;

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

bool is_small(size_t size) { return size <= kLargestSmall; }

}  // namespace

// Small sizes: every granule up to 1 KiB, then eight per power of two.
size_t block_size(size_t bytes) {
  size_t unit = kGranule;
  if (bytes > kLargestSmall) {
    unit = 512;
  } else {
    while (unit * 16 < bytes) {
      unit *= 2;
    }
  }
  return round_up(bytes, unit);
}

BlockPool::BlockPool(size_t arena_bytes) : table_(arena_bytes / kGranule / kGranulesPerChunk) {
  first_ = new Block{0, arena_bytes, BlockState::kUnowned};
  set_entry(0, first_);
  unowned_.insert(first_);
}

Block* BlockPool::take(size_t size, int stream) {
  Cache& cache = caches_[stream];
  Block* block = nullptr;
  if (is_small(size)) {
    std::vector<Block*>& same_size = cache.small[size];
    if (!same_size.empty()) {
      block = same_size.back();
      same_size.pop_back();
    }
  } else {
    block = take_from(cache.large, size);
  }
  if (block == nullptr) {
    block = take_from(unowned_, size);
  }
  if (block == nullptr) {
    return nullptr;
  }
  if (block->size > size) {
    cut(block, size);
  }
  block->state = BlockState::kLive;
  block->stream = stream;
  return block;
}

Block* BlockPool::take_from(Large& blocks, size_t size) {
  const auto best = blocks.lower_bound(size);
  if (best == blocks.end()) {
    return nullptr;
  }
  Block* const block = *best;
  blocks.erase(best);
  return block;
}

// The rest keeps the owner and state of the block.
void BlockPool::cut(Block* block, size_t size) {
  auto* const rest = new Block{block->offset + size, block->size - size, block->state};
  rest->stream = block->stream;
  rest->before = block;
  rest->after = block->after;
  if (rest->after != nullptr) {
    rest->after->before = rest;
  }
  block->after = rest;
  block->size = size;
  set_entry(rest->offset, rest);
  enter(rest);
}

void BlockPool::give(Block* block) {
  block->state = BlockState::kCached;
  enter(is_small(block->size) ? block : join(block));
}

void BlockPool::enter(Block* block) {
  if (block->state == BlockState::kUnowned) {
    unowned_.insert(block);
  } else if (is_small(block->size)) {
    caches_[block->stream].small[block->size].push_back(block);
  } else {
    caches_[block->stream].large.insert(block);
  }
}

Block* BlockPool::join(Block* block) {
  const auto joins = [block](const Block* other) {
    return other != nullptr && other->state == BlockState::kCached &&
           other->stream == block->stream && !is_small(other->size);
  };
  Large& large = caches_[block->stream].large;
  if (joins(block->after)) {
    large.erase(block->after);
    absorb_next(block);
  }
  if (joins(block->before)) {
    block = block->before;
    large.erase(block);
    absorb_next(block);
  }
  return block;
}

void BlockPool::absorb_next(Block* block) {
  Block* const next = block->after;
  block->size += next->size;
  block->after = next->after;
  if (next->after != nullptr) {
    next->after->before = block;
  }
  set_entry(next->offset, nullptr);
  delete next;
}

// Needs empty caches. Joins the block with all reusable ones behind it.
void BlockPool::disown(Block* block) {
  const auto reusable = [](const Block* other) {
    return other != nullptr &&
           (other->state == BlockState::kCached || other->state == BlockState::kUnowned);
  };
  while (reusable(block->after)) {
    absorb_next(block);
  }
  block->state = BlockState::kUnowned;
  block->stream = kNoStream;
  unowned_.insert(block);
}

void BlockPool::set_entry(size_t offset, Block* block) {
  const size_t granule = offset / kGranule;
  auto& chunk = table_[granule / kGranulesPerChunk];
  if (chunk == nullptr) {
    chunk = std::make_unique<std::vector<Block*>>(kGranulesPerChunk);
  }
  (*chunk)[granule % kGranulesPerChunk] = block;
}

Block* BlockPool::at(size_t offset) const {
  const size_t granule = offset / kGranule;
  const auto& chunk = table_[granule / kGranulesPerChunk];
  return chunk == nullptr || offset % kGranule != 0 ? nullptr
                                                    : (*chunk)[granule % kGranulesPerChunk];
}

Block* BlockPool::around(size_t offset) const {
  Block* block = first_;
  while (block->offset + block->size <= offset) {
    block = block->after;
  }
  return block;
}

}  // namespace lockstep::simdev::internal
