// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/poison.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace lockstep::simdev::internal {
namespace {

constexpr unsigned char kPoison = 0xFF;
constexpr size_t kEdge = size_t{32} << 10;

size_t edge(size_t bytes) { return std::min(bytes, kEdge); }

// `bytes` is a multiple of 64; the inner loop is one that compilers vectorise.
bool is_poison(const char* memory, size_t bytes) {
  uint64_t all = ~uint64_t{0};
  for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, memory + i, sizeof(word));
    all &= word;
  }
  return all == ~uint64_t{0};
}

size_t first_change_in(const char* memory, size_t begin, size_t end) {
  if (is_poison(memory + begin, end - begin)) {
    return end;
  }
  return std::find_if(memory + begin, memory + end,
                      [](char byte) { return static_cast<unsigned char>(byte) != kPoison; }) -
         memory;
}

}  // namespace

void poison(char* memory, size_t bytes) {
  std::memset(memory, kPoison, edge(bytes));
  std::memset(memory + bytes - edge(bytes), kPoison, edge(bytes));
}

size_t first_change(const char* memory, size_t bytes) {
  const size_t change = first_change_in(memory, 0, edge(bytes));
  if (change < edge(bytes)) {
    return change;
  }
  return first_change_in(memory, bytes - edge(bytes), bytes);
}

}  // namespace lockstep::simdev::internal
