// SPDX-License-Identifier: Apache-2.0
// arguments.h: says how an argument of DataParallel::forward reaches the replicas, where that is not
// plain from its type, and where a struct of yours keeps its tensors.
//
//   // The state of an LSTM has its batch in dim 1; a graph belongs to all rows.
//   parallel.forward(x, split_along(state, 1), to_all_replicas(adjacency));
//
//   struct Batch { at::Tensor image, mask, state; int64_t epoch; };
//   template <>
//   struct lockstep::parallel::TensorMembers<Batch> {
//     template <class B>
//     static auto of(B& b) { return members(b.image, b.mask, split_along(b.state, 1)); }
//   };
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace lockstep::parallel {

// A value whose tensors are split, or as part of a result joined, along `dim`.
// T is a reference where the value was an lvalue: use it at once, do not keep it.
template <class T>
struct SplitAlong {
  T value;
  int64_t dim;
};

// A value whose tensors go to every replica whole; as part of a result, replica 0's is taken.
template <class T>
struct ToAllReplicas {
  T value;
};

// Splits the tensors in `value` along `dim` instead of along DataParallelOptions::dim; negative
// counts from the end. Forward gets the plain value.
template <class T>
SplitAlong<T> split_along(T&& value, int64_t dim) {
  return {std::forward<T>(value), dim};
}

// Copies all tensors in `value` to every replica instead of splitting them, also those that its
// struct splits. Forward gets the plain value. The gradient of such a tensor is the sum over the replicas, in order.
template <class T>
ToAllReplicas<T> to_all_replicas(T&& value) {
  return {std::forward<T>(value)};
}

// Specialise it for a struct that holds tensors and is passed to or returned from forward: of(b)
// returns members(...) of those members that are tensors or hold some, for a const and for a
// mutable `b`, always in the same order, each held by value: what a pointer leads to would be the
// caller's own. The other members are copied with the struct; of a result
// they are replica 0's. A struct without a specialisation counts as one that holds no tensor.
template <class Struct>
struct TensorMembers {};

// References to the given members, and their wrappers.
template <class... T>
std::tuple<T...> members(T&&... member) {
  return std::tuple<T...>(std::forward<T>(member)...);
}

namespace internal {

// Where a tensor of an argument goes, or how that of a result is joined.
struct Placement {
  bool whole = false;          // the same in all replicas
  std::optional<int64_t> dim;  // absent: DataParallelOptions::dim
};

template <class T>
struct Unwrapped {
  using type = T;
};
template <class T>
struct Unwrapped<SplitAlong<T>> : Unwrapped<std::decay_t<T>> {};
template <class T>
struct Unwrapped<ToAllReplicas<T>> : Unwrapped<std::decay_t<T>> {};

// What forward gets for an argument of type T.
template <class T>
using Unwrap = typename Unwrapped<std::decay_t<const T&>>::type;

template <class T>
const T& unwrap(const T& value) {
  return value;
}
template <class T>
const auto& unwrap(const SplitAlong<T>& wrapper) {
  return internal::unwrap(wrapper.value);
}
template <class T>
const auto& unwrap(const ToAllReplicas<T>& wrapper) {
  return internal::unwrap(wrapper.value);
}

}  // namespace internal
}  // namespace lockstep::parallel
