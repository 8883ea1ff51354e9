// SPDX-License-Identifier: Apache-2.0
// nested_structure.h: whether two results of one forward can be joined tensor by tensor.
// Internal to parallel.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/StringUtil.h>

#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "parallel/nested_tensors.h"

namespace lockstep::parallel::internal {

template <class T, class = void>
struct HasEquality : std::false_type {};
template <class T>
struct HasEquality<T, std::void_t<decltype(static_cast<bool>(std::declval<const T&>() ==
                                                             std::declval<const T&>()))>>
    : std::true_type {};

template <class T>
std::optional<std::string> difference(const T& value, const T& first);

// The first difference among the items of two tuples of one type.
template <class Tuple, size_t... Index>
std::optional<std::string> difference_of_items(const Tuple& value, const Tuple& first,
                                               std::index_sequence<Index...>) {
  std::optional<std::string> found;
  const auto compare = [&](size_t index, const auto& a, const auto& b) {
    if (!found.has_value()) {
      found = internal::difference(a, b);
      if (found.has_value()) {
        found = c10::str("[", index, "]", *found);
      }
    }
  };
  (compare(Index, std::get<Index>(value), std::get<Index>(first)), ...);
  return found;
}

template <class Map>
std::optional<std::string> difference_of_maps(const Map& value, const Map& first) {
  if (value.size() != first.size()) {
    return c10::str(" has ", value.size(), " keys, but that of replica 0 ", first.size());
  }
  const auto entries = entries_in_order(value);
  const auto others = entries_in_order(first);
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto& [key, item] = *entries[i];
    const auto& [other_key, other_item] = *others[i];
    if (key < other_key || other_key < key) {
      return " has other keys than that of replica 0";
    }
    if (const auto inner = internal::difference(item, other_item)) {
      return c10::str("[entry ", i, "]", *inner);
    }
  }
  return std::nullopt;
}

// Says where and how `value`, of some replica, differs from `first`, that of replica 0, in what
// must be the same to join them: which optionals are set, sizes, keys, and everything that is no
// tensor and can be compared. None if in nothing. The text goes on after the name of the result.
template <class T>
std::optional<std::string> difference(const T& value, const T& first) {
  if constexpr (std::is_base_of_v<at::Tensor, T>) {
    return std::nullopt;  // shapes are checked where tensors are joined
  } else if constexpr (IsSplitAlong<T>::value || IsToAllReplicas<T>::value) {
    return internal::difference(internal::unwrap(value), internal::unwrap(first));
  } else if constexpr (HasTensorMembers<T>::value) {
    const auto members = TensorMembers<T>::of(value);
    const auto others = TensorMembers<T>::of(first);
    return difference_of_items(
        members, others,
        std::make_index_sequence<std::tuple_size_v<std::decay_t<decltype(members)>>>());
  } else if constexpr (IsTuple<T>::value) {
    return difference_of_items(value, first, std::make_index_sequence<std::tuple_size_v<T>>());
  } else if constexpr (IsOptional<T>::value) {
    if (value.has_value() != first.has_value()) {
      return c10::str(" is ", value.has_value() ? "set" : "empty",
                      ", but that of replica 0 is not");
    }
    return value.has_value() ? internal::difference(*value, *first) : std::nullopt;
  } else if constexpr (IsVariant<T>::value) {
    if (value.index() != first.index()) {
      return c10::str(" holds alternative ", value.index(), ", but that of replica 0 ",
                      first.index());
    }
    return std::visit(
        [](const auto& held, const auto& other) -> std::optional<std::string> {
          if constexpr (std::is_same_v<decltype(held), decltype(other)>) {
            return internal::difference(held, other);
          } else {
            return std::nullopt;
          }
        },
        value, first);
  } else if constexpr (IsSequence<T>::value) {
    if (value.size() != first.size()) {
      return c10::str(" has ", value.size(), " elements, but that of replica 0 ", first.size());
    }
    for (size_t i = 0; i < value.size(); ++i) {
      if (const auto inner = internal::difference(value[i], first[i])) {
        return c10::str("[", i, "]", *inner);
      }
    }
  } else if constexpr (IsMap<T>::value) {
    return difference_of_maps(value, first);
  } else if constexpr (IsOrderedDict<T>::value) {
    if (value.keys() != first.keys()) {
      return " has other keys than that of replica 0";
    }
    for (size_t i = 0; i < value.size(); ++i) {
      if (const auto inner = internal::difference(value[i].value(), first[i].value())) {
        return c10::str("[", i, "]", *inner);
      }
    }
  } else if constexpr (HasEquality<T>::value) {
    bool same = static_cast<bool>(value == first);
    if constexpr (std::is_floating_point_v<T>) {
      same = same || (std::isnan(value) && std::isnan(first));
    }
    if (!same) {
      return " is no tensor, and not what replica 0 returned: make it a tensor to get all values";
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::parallel::internal
