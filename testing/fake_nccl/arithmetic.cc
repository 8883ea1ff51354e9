// SPDX-License-Identifier: Apache-2.0
#include "testing/fake_nccl/arithmetic.h"

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace lockstep::fake_nccl::internal {
namespace {

template <class T>
T load(const void* values, size_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(values) + index * sizeof(T), sizeof(T));
  return value;
}

// Wide enough not to be promoted to int, whose overflow is undefined.
template <class T>
using Wrapping = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <class T>
T add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  } else {
    return a + b;
  }
}

template <class T>
T multiply(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  } else {
    return a * b;
  }
}

template <class T>
T combine(RedOp op, T a, T b) {
  switch (op) {
    case RedOp::kProd:
      return multiply(a, b);
    case RedOp::kMax:
      return a < b ? b : a;
    case RedOp::kMin:
      return b < a ? b : a;
    default:
      return add(a, b);
  }
}

template <class T>
T divide(T sum, size_t ranks) {
  if constexpr (std::is_same_v<T, double>) {
    return sum / static_cast<double>(ranks);
  } else if constexpr (std::is_integral_v<T>) {
    // In 64 bits: the number of ranks may not fit into T.
    using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
    return static_cast<T>(static_cast<Wide>(sum) / static_cast<Wide>(ranks));
  } else {
    return static_cast<T>(static_cast<float>(sum) / static_cast<float>(ranks));
  }
}

template <class T>
void fold_as(const std::vector<Term>& terms, RedOp op, size_t begin, size_t count, void* out) {
  const auto value = [&](const Term& term, size_t index) {
    const T loaded = load<T>(term.values, index);
    return term.scalar == nullptr ? loaded : multiply(loaded, load<T>(term.scalar, 0));
  };
  for (size_t i = 0; i < count; ++i) {
    T folded = value(terms[0], begin + i);
    for (size_t term = 1; term < terms.size(); ++term) {
      folded = combine(op, folded, value(terms[term], begin + i));
    }
    if (op == RedOp::kAvg) {
      folded = divide(folded, terms.size());
    }
    std::memcpy(static_cast<char*>(out) + i * sizeof(T), &folded, sizeof(T));
  }
}

}  // namespace

void fold(const std::vector<Term>& terms, DataType dtype, RedOp op, size_t begin, size_t count,
          void* out) {
  const auto run = [&](auto zero) { fold_as<decltype(zero)>(terms, op, begin, count, out); };
  switch (dtype) {
    case DataType::kInt8:
      return run(int8_t());
    case DataType::kUint8:
      return run(uint8_t());
    case DataType::kInt32:
      return run(int32_t());
    case DataType::kUint32:
      return run(uint32_t());
    case DataType::kInt64:
      return run(int64_t());
    case DataType::kUint64:
      return run(uint64_t());
    case DataType::kFloat16:
      return run(c10::Half());
    case DataType::kFloat32:
      return run(float());
    case DataType::kFloat64:
      return run(double());
    case DataType::kBfloat16:
      return run(c10::BFloat16());
    case DataType::kFloat8e4m3:
    case DataType::kFloat8e5m2:
      return;  // refused before
  }
}

}  // namespace lockstep::fake_nccl::internal
