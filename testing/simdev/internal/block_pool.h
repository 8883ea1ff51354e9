// SPDX-License-Identifier: Apache-2.0
// block_pool.h: finds, cuts and joins the blocks of one device. Small blocks keep their size and are
// reused by size; large ones are cut from the best fit and joined with free neighbours.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "testing/simdev/internal/block.h"

namespace lockstep::simdev::internal {

// Bytes that a block for so many bytes has.
size_t block_size(size_t bytes);

// Threads: not safe.
class BlockPool {
 public:
  explicit BlockPool(size_t arena_bytes);

  // A live block of that size, reused from the stream's own or cut from what nobody owns, or null.
  Block* take(size_t size, int stream);
  // A block that is not live any more becomes reusable by its stream.
  void give(Block* block);
  // What streams have for reuse becomes nobody's; calls `discard` for each joined block.
  template <class Discard>
  void disown_all(Discard discard);

  // The block that begins there, or null.
  Block* at(size_t offset) const;
  // The block that holds that byte of the arena. Slow.
  Block* around(size_t offset) const;
  Block* first() const { return first_; }

 private:
  struct BySize {
    bool operator()(const Block* a, const Block* b) const {
      return std::make_pair(a->size, a->offset) < std::make_pair(b->size, b->offset);
    }
    using is_transparent = void;
    bool operator()(const Block* a, size_t size) const { return a->size < size; }
    bool operator()(size_t size, const Block* b) const { return size < b->size; }
  };
  using Large = std::set<Block*, BySize>;
  struct Cache {
    std::unordered_map<size_t, std::vector<Block*>> small;  // by size
    Large large;
  };

  Block* take_from(Large& blocks, size_t size);
  void cut(Block* block, size_t size);
  Block* join(Block* block);
  void absorb_next(Block* block);
  void enter(Block* block);
  void set_entry(size_t offset, Block* block);
  void disown(Block* block);

  std::map<int, Cache> caches_;  // by stream
  Large unowned_;
  std::vector<std::unique_ptr<std::vector<Block*>>> table_;
  Block* first_;
};

template <class Discard>
void BlockPool::disown_all(Discard discard) {
  caches_.clear();
  unowned_.clear();
  for (Block* block = first_; block != nullptr; block = block->after) {
    if (block->state == BlockState::kCached || block->state == BlockState::kUnowned) {
      disown(block);
      discard(*block);
    }
  }
}

}  // namespace lockstep::simdev::internal
