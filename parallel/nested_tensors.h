// SPDX-License-Identifier: Apache-2.0
// nested_tensors.h: finds and changes the tensors inside arguments and results of a forward.
// Internal to parallel. Looks into pairs, tuples, optionals, vectors, arrays and maps; any other
// type counts as one that holds no tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep::parallel::internal {

template <class T>
struct IsSequence : std::false_type {};
template <class T, class A>
struct IsSequence<std::vector<T, A>> : std::true_type {};
template <class T, size_t N>
struct IsSequence<std::array<T, N>> : std::true_type {};

template <class T>
struct IsMap : std::false_type {};
template <class K, class V, class C, class A>
struct IsMap<std::map<K, V, C, A>> : std::true_type {};
template <class K, class V, class H, class E, class A>
struct IsMap<std::unordered_map<K, V, H, E, A>> : std::true_type {};

template <class T>
struct IsTuple : std::false_type {};
template <class... Ts>
struct IsTuple<std::tuple<Ts...>> : std::true_type {};
template <class A, class B>
struct IsTuple<std::pair<A, B>> : std::true_type {};

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

// Calls visit(tensor) for every tensor in `value`, in order. Pass a const value to look only.
template <class Value, class Visit>
void visit_tensors(Value& value, const Visit& visit) {
  using T = std::remove_const_t<Value>;
  if constexpr (std::is_same_v<T, at::Tensor>) {
    visit(value);
  } else if constexpr (IsTuple<T>::value) {
    std::apply([&](auto&... items) { (visit_tensors(items, visit), ...); }, value);
  } else if constexpr (IsOptional<T>::value) {
    if (value.has_value()) {
      visit_tensors(*value, visit);
    }
  } else if constexpr (std::is_same_v<T, std::vector<bool>>) {
  } else if constexpr (IsSequence<T>::value) {
    for (auto& item : value) {
      visit_tensors(item, visit);
    }
  } else if constexpr (IsMap<T>::value) {
    for (auto& item : value) {
      visit_tensors(item.second, visit);
    }
  }
}

}  // namespace lockstep::parallel::internal
