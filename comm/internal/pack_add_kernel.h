// SPDX-License-Identifier: Apache-2.0
// pack_add_kernel: what one thread does to write the sums of scattered tensors one after another
// into a flat buffer. Compiled for CUDA by comm/cuda/pack_add.cu, and for the host by tests.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Exception.h>
#include <c10/util/Half.h>

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define LOCKSTEP_KERNEL __host__ __device__ inline
#else
#define LOCKSTEP_KERNEL inline
#endif

namespace lockstep::comm::internal {

// How elements are added: the integer types wrap, so that signs do not matter.
enum class Summand { kBool, kInt8, kInt16, kInt32, kInt64, kHalf, kBFloat16, kFloat, kDouble };

// What a launch is given. Passed to a kernel by value, so at most 4 KiB.
struct PackAddTable {
  static constexpr int kMaxSources = 320;
  static constexpr int kMaxPieces = kMaxSources / 2;  // of two rows, the fewest that are added

  // Piece p of row r begins at sources[p * rows + r] and is written from the end of piece p - 1 to
  // ends[p], both counted in elements from `flat`; piece 0 starts at `begin`.
  const void* sources[kMaxSources];
  int64_t ends[kMaxPieces];
  void* flat;
  int64_t begin;
  int32_t pieces;
  int32_t rows;
};
static_assert(sizeof(PackAddTable) <= 4096);

// A block of threads writes this much of the flat buffer: four vectors for each thread.
constexpr int kPackAddThreads = 256;
constexpr int64_t kPackAddVectorBytes = 16;
constexpr int64_t kPackAddBlockBytes = 4 * kPackAddThreads * kPackAddVectorBytes;

// The number of blocks that write the whole table.
inline int64_t pack_add_blocks(const PackAddTable& table, int64_t element_bytes) {
  const int64_t elements = table.ends[table.pieces - 1] - table.begin;
  const int64_t per_block = kPackAddBlockBytes / element_bytes;
  return (elements + per_block - 1) / per_block;
}

template <class T>
LOCKSTEP_KERNEL T plus(T a, T b) {
  return static_cast<T>(a + b);
}

// A bool as it lies in memory, where a tensor that is a view of another dtype may hold any byte.
struct BoolByte {
  uint8_t value;
};

LOCKSTEP_KERNEL BoolByte plus(BoolByte a, BoolByte b) {
  return {static_cast<uint8_t>((a.value | b.value) != 0)};
}

// Calls f with a value of the type that stands for `kind`.
template <class F>
auto with_summand_type(Summand kind, F&& f) {
  switch (kind) {
    case Summand::kBool:
      return f(BoolByte{});
    case Summand::kInt8:
      return f(uint8_t{});
    case Summand::kInt16:
      return f(uint16_t{});
    case Summand::kInt32:
      return f(uint32_t{});
    case Summand::kInt64:
      return f(uint64_t{});
    case Summand::kHalf:
      return f(c10::Half{});
    case Summand::kBFloat16:
      return f(c10::BFloat16{});
    case Summand::kFloat:
      return f(float{});
    case Summand::kDouble:
      break;
  }
  return f(double{});
}

namespace pack_add_detail {

template <class T>
struct alignas(kPackAddVectorBytes) Vector {
  static constexpr int kLanes = static_cast<int>(kPackAddVectorBytes / sizeof(T));
  T lanes[kLanes];
};

LOCKSTEP_KERNEL int64_t misalignment(const void* address) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(address) %
                              static_cast<uintptr_t>(kPackAddVectorBytes));
}

// One instruction each on a device, which stops the program if the address is not aligned; the host
// does the same.
template <class V>
LOCKSTEP_KERNEL V load_vector(const void* from) {
#ifdef __CUDACC__
  return *static_cast<const V*>(from);
#else
  TORCH_INTERNAL_ASSERT(misalignment(from) == 0);
  V value;
  std::memcpy(&value, from, sizeof(V));
  return value;
#endif
}

template <class V>
LOCKSTEP_KERNEL void store_vector(const V& value, void* to) {
#ifdef __CUDACC__
  *static_cast<V*>(to) = value;
#else
  TORCH_INTERNAL_ASSERT(misalignment(to) == 0);
  std::memcpy(to, &value, sizeof(V));
#endif
}

LOCKSTEP_KERNEL int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// The elements [from, to) of one piece, counted from its begin, one by one.
template <class T>
LOCKSTEP_KERNEL void add_singly(const void* const* sources, int rows, T* out, int64_t from,
                                int64_t to, int thread) {
  for (int64_t i = from + thread; i < to; i += kPackAddThreads) {
    T sum = static_cast<const T*>(sources[0])[i];
    for (int r = 1; r < rows; ++r) {
      sum = plus(sum, static_cast<const T*>(sources[r])[i]);
    }
    out[i] = sum;
  }
}

// The same for whole vectors of 16 bytes, all of them aligned.
template <class T>
LOCKSTEP_KERNEL void add_vectors(const void* const* sources, int rows, T* out, int64_t from,
                                 int64_t vectors, int thread) {
  using V = Vector<T>;
#ifdef __CUDA_ARCH__
#pragma unroll 4
#endif
  for (int64_t v = thread; v < vectors; v += kPackAddThreads) {
    const int64_t i = from + v * V::kLanes;
    V sum = load_vector<V>(static_cast<const T*>(sources[0]) + i);
    for (int r = 1; r < rows; ++r) {
      const V next = load_vector<V>(static_cast<const T*>(sources[r]) + i);
      for (int lane = 0; lane < V::kLanes; ++lane) {
        sum.lanes[lane] = plus(sum.lanes[lane], next.lanes[lane]);
      }
    }
    store_vector(sum, out + i);
  }
}

// The first piece that ends after `position`.
LOCKSTEP_KERNEL int piece_at(const PackAddTable& table, int64_t position) {
  int low = 0;
  int high = table.pieces - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (table.ends[middle] > position) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace pack_add_detail

// What thread `thread` of block `block` does. Partial sums are rounded to T, in row order.
template <class T>
LOCKSTEP_KERNEL void pack_add_thread(const PackAddTable& table, int64_t block, int thread) {
  using namespace pack_add_detail;
  constexpr int64_t kPerBlock = kPackAddBlockBytes / static_cast<int64_t>(sizeof(T));
  constexpr int64_t kLanes = Vector<T>::kLanes;
  int64_t position = table.begin + block * kPerBlock;
  const int64_t end = smaller(position + kPerBlock, table.ends[table.pieces - 1]);
  for (int p = piece_at(table, position); position < end; ++p) {
    const int64_t piece_begin = p == 0 ? table.begin : table.ends[p - 1];
    const int64_t piece_end = smaller(end, table.ends[p]);
    const void* const* const sources = table.sources + p * table.rows;
    T* const out = static_cast<T*>(table.flat) + piece_begin;
    const int64_t from = position - piece_begin;
    const int64_t to = piece_end - piece_begin;
    const int64_t skew = misalignment(out);
    bool aligned_alike = skew % static_cast<int64_t>(sizeof(T)) == 0;
    for (int r = 0; r < table.rows; ++r) {
      aligned_alike = aligned_alike && misalignment(sources[r]) == skew;
    }
    const int64_t ahead = aligned_alike ? (kPackAddVectorBytes - misalignment(out + from)) %
                                              kPackAddVectorBytes / static_cast<int64_t>(sizeof(T))
                                        : to - from;
    const int64_t body = from + smaller(ahead, to - from);
    const int64_t vectors = (to - body) / kLanes;
    add_singly<T>(sources, table.rows, out, from, body, thread);
    add_vectors<T>(sources, table.rows, out, body, vectors, thread);
    add_singly<T>(sources, table.rows, out, body + vectors * kLanes, to, thread);
    position = piece_end;
  }
}

}  // namespace lockstep::comm::internal
