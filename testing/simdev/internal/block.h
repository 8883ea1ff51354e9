// SPDX-License-Identifier: Apache-2.0
// block.h: a piece of a device's arena. The blocks of a device cover its arena without gaps.
#pragma once

#include <cstddef>
#include <vector>

#include "testing/simdev/internal/access_log.h"

namespace lockstep::simdev::internal {

// Sizes and offsets of blocks are multiples of it.
constexpr size_t kGranule = 64;
constexpr int kNoStream = -1;

enum class BlockState {
  kLive,
  kQuarantined,  // freed, kept from reuse, poisoned
  kCached,       // freed, ready for reuse by its stream
  kUnowned,      // never used, or given back: ready for any stream
};

struct Block {
  size_t offset;
  size_t size;
  BlockState state;
  int stream = kNoStream;  // the only one that reuses it
  size_t asked = 0;
  bool poisoned = false;
  Block* before = nullptr;  // by address
  Block* after = nullptr;
  AccessLog accesses = {};
  std::vector<int> recorded = {};  // by record_stream
};

}  // namespace lockstep::simdev::internal
