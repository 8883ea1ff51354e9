// SPDX-License-Identifier: Apache-2.0
// hidden_tensors.h: types of arguments and results in which tensors would be overlooked, so that
// the compiler can refuse them. Internal to parallel.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <array>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "parallel/arguments.h"
#include "parallel/nested_tensors.h"

namespace c10 {
struct IValue;
template <class T>
class List;
template <class Key, class Value>
class Dict;
}  // namespace c10

namespace torch::nn::utils::rnn {
class PackedSequence;
}  // namespace torch::nn::utils::rnn

namespace lockstep::parallel::internal {

template <class T>
constexpr bool hides_tensors();
template <class T>
constexpr bool holds_tensors();

// What a type is made of, as far as it can be seen.
template <class T>
struct Parts {
  static constexpr bool any_hides = false;
  static constexpr bool any_holds = false;
  static constexpr bool any_refers = false;
};

template <class T>
constexpr bool refers_to_others() {
  return Parts<T>::any_refers;
}

template <class... Ts>
struct PartsOf {
  static constexpr bool any_hides = (hides_tensors<Ts>() || ...);
  static constexpr bool any_holds = (holds_tensors<Ts>() || ...);
  static constexpr bool any_refers = (refers_to_others<Ts>() || ...);
};
template <class... Ts>
struct Parts<std::tuple<Ts...>> : PartsOf<Ts...> {};
template <class A, class B>
struct Parts<std::pair<A, B>> : PartsOf<A, B> {};
template <class... Ts>
struct Parts<std::variant<Ts...>> : PartsOf<Ts...> {};
template <class T>
struct Parts<std::optional<T>> : PartsOf<T> {};
template <class T, class A>
struct Parts<std::vector<T, A>> : PartsOf<T> {};
template <class T, size_t N>
struct Parts<std::array<T, N>> : PartsOf<T> {};
template <class K, class V, class C, class A>
struct Parts<std::map<K, V, C, A>> : PartsOf<V> {};
template <class K, class V, class H, class E, class A>
struct Parts<std::unordered_map<K, V, H, E, A>> : PartsOf<V> {};
template <class K, class V>
struct Parts<torch::OrderedDict<K, V>> : PartsOf<V> {};
template <class T>
struct Parts<SplitAlong<T>> : PartsOf<std::remove_cv_t<std::remove_reference_t<T>>> {
  static constexpr bool any_refers = std::is_reference_v<T>;
};
template <class T>
struct Parts<ToAllReplicas<T>> : PartsOf<std::remove_cv_t<std::remove_reference_t<T>>> {
  static constexpr bool any_refers = std::is_reference_v<T>;
};

// Containers and pointers that visit_tensors() does not look into.
template <class T>
struct Opaque {
  static constexpr bool with_tensors = false;
};
template <class T>
struct OpaqueOf {
  static constexpr bool with_tensors = holds_tensors<std::remove_cv_t<T>>();
};
template <class T, class A>
struct Opaque<std::list<T, A>> : OpaqueOf<T> {};
template <class T, class A>
struct Opaque<std::deque<T, A>> : OpaqueOf<T> {};
template <class T, class C, class A>
struct Opaque<std::set<T, C, A>> : OpaqueOf<T> {};
template <class T>
struct Opaque<std::reference_wrapper<T>> : OpaqueOf<T> {};
template <class T>
struct Opaque<std::shared_ptr<T>> : OpaqueOf<T> {};
template <class T>
struct Opaque<c10::ArrayRef<T>> : OpaqueOf<T> {};
template <class T>
struct Opaque<c10::List<T>> {
  static constexpr bool with_tensors = true;
};
template <class K, class V>
struct Opaque<c10::Dict<K, V>> {
  static constexpr bool with_tensors = true;
};
template <>
struct Opaque<c10::IValue> {
  static constexpr bool with_tensors = true;
};
template <>
struct Opaque<torch::nn::utils::rnn::PackedSequence> {
  static constexpr bool with_tensors = true;
};

// Whether visit_tensors() may find a tensor in a T.
template <class T>
constexpr bool holds_tensors() {
  return std::is_base_of_v<at::Tensor, T> || HasTensorMembers<T>::value || Parts<T>::any_holds;
}

// Whether a T may hold tensors that visit_tensors() does not find.
template <class T>
constexpr bool hides_tensors() {
  return Opaque<T>::with_tensors || Parts<T>::any_hides;
}

}  // namespace lockstep::parallel::internal
