// SPDX-License-Identifier: Apache-2.0
// nested_tensors.h: finds and changes the tensors inside arguments and results of a forward.
// Internal to parallel. Looks into pairs, tuples, optionals, variants, vectors, arrays, maps,
// torch::OrderedDict and structs with TensorMembers; any other type counts as one that holds no
// tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "parallel/arguments.h"

namespace torch {
template <class Key, class Value>
class OrderedDict;
}  // namespace torch

namespace lockstep::parallel::internal {

template <class T>
struct IsSequence : std::false_type {};
template <class T, class A>
struct IsSequence<std::vector<T, A>> : std::true_type {};
template <class A>
struct IsSequence<std::vector<bool, A>> : std::false_type {};
template <class T, size_t N>
struct IsSequence<std::array<T, N>> : std::true_type {};

template <class T>
struct IsMap : std::false_type {};
template <class K, class V, class C, class A>
struct IsMap<std::map<K, V, C, A>> : std::true_type {};
template <class K, class V, class H, class E, class A>
struct IsMap<std::unordered_map<K, V, H, E, A>> : std::true_type {};

template <class T>
struct IsUnorderedMap : std::false_type {};
template <class K, class V, class H, class E, class A>
struct IsUnorderedMap<std::unordered_map<K, V, H, E, A>> : std::true_type {};

template <class T>
struct IsOrderedDict : std::false_type {};
template <class K, class V>
struct IsOrderedDict<torch::OrderedDict<K, V>> : std::true_type {};

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

template <class T>
struct IsVariant : std::false_type {};
template <class... Ts>
struct IsVariant<std::variant<Ts...>> : std::true_type {};

template <class T>
struct IsSplitAlong : std::false_type {};
template <class T>
struct IsSplitAlong<SplitAlong<T>> : std::true_type {};

template <class T>
struct IsToAllReplicas : std::false_type {};
template <class T>
struct IsToAllReplicas<ToAllReplicas<T>> : std::true_type {};

template <class T, class = void>
struct HasTensorMembers : std::false_type {};
template <class T>
struct HasTensorMembers<T, std::void_t<decltype(TensorMembers<T>::of(std::declval<T&>()))>>
    : std::true_type {};

// The entries of a map, by key: two equal unordered maps may list theirs in different orders.
template <class Map>
auto entries_in_order(Map& map) {
  std::vector<decltype(&*map.begin())> entries;
  entries.reserve(map.size());
  for (auto& entry : map) {
    entries.push_back(&entry);
  }
  if constexpr (IsUnorderedMap<std::remove_const_t<Map>>::value) {
    std::sort(entries.begin(), entries.end(),
              [](const auto* a, const auto* b) { return a->first < b->first; });
  }
  return entries;
}

// Calls visit(tensor), or visit(tensor, placement) if it can be called so, for every tensor in
// `value`, in order. Pass a const value to look only. `placement` is that of `value`, for what
// stands in no wrapper of its own.
template <class Value, class Visit>
void visit_tensors(Value& value, const Visit& visit, const Placement& placement = {}) {
  using T = std::remove_const_t<Value>;
  const auto go_on = [&](auto& part) { visit_tensors(part, visit, placement); };
  if constexpr (std::is_base_of_v<at::Tensor, T>) {
    using Tensor = std::conditional_t<std::is_const_v<Value>, const at::Tensor, at::Tensor>;
    if constexpr (std::is_invocable_v<const Visit&, Tensor&, const Placement&>) {
      visit(static_cast<Tensor&>(value), placement);
    } else {
      visit(static_cast<Tensor&>(value));
    }
  } else if constexpr (IsSplitAlong<T>::value) {
    visit_tensors(value.value, visit, placement.whole ? placement : Placement{false, value.dim});
  } else if constexpr (IsToAllReplicas<T>::value) {
    visit_tensors(value.value, visit, {true, std::nullopt});
  } else if constexpr (HasTensorMembers<T>::value) {
    auto parts = TensorMembers<T>::of(value);
    go_on(parts);
  } else if constexpr (IsTuple<T>::value) {
    std::apply([&](auto&... items) { (go_on(items), ...); }, value);
  } else if constexpr (IsOptional<T>::value) {
    if (value.has_value()) {
      go_on(*value);
    }
  } else if constexpr (IsVariant<T>::value) {
    std::visit(go_on, value);
  } else if constexpr (IsSequence<T>::value) {
    for (auto& item : value) {
      go_on(item);
    }
  } else if constexpr (IsMap<T>::value) {
    for (auto* entry : entries_in_order(value)) {
      go_on(entry->second);
    }
  } else if constexpr (IsOrderedDict<T>::value) {
    for (auto& item : value) {
      go_on(item.value());
    }
  }
}

}  // namespace lockstep::parallel::internal
