// SPDX-License-Identifier: Apache-2.0
// typed_call.h: a call of a module's forward, or of a function with a module, on all replicas: takes
// the arguments apart into tensors and puts the results together. Internal to parallel.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "parallel/arguments.h"
#include "parallel/hidden_tensors.h"
#include "parallel/nested_structure.h"
#include "parallel/nested_tensors.h"
#include "parallel/replica_call.h"

namespace lockstep::parallel::internal {

// Says what a user has to change, if a type cannot be an argument or a result.
template <class T>
constexpr void check_type() {
  static_assert(!hides_tensors<T>(),
                "this type, or one inside it, may hold tensors that cannot be found, split or "
                "joined: use std::vector, std::map or a struct with TensorMembers; pad sequences "
                "and pack them in forward");
  static_assert(std::is_copy_constructible_v<T>,
                "arguments and results are copied: pass a std::shared_ptr to what cannot be");
  static_assert(!refers_to_others<T>(),
                "split_along() and to_all_replicas() of a variable refer to it: inside a container "
                "or a result pass them a copy or std::move()");
}

// Calls `function(module, arguments...)` on every replica's module, of type M, with its own copy of
// the arguments, and returns the results as one of the same type whose tensors are joined.
// run_core(call) is what runs it.
template <class M, class Function, class RunCore, class... Arguments>
auto run_call(const char* name, size_t num_devices, const RunCore& run_core,
              const Function& function, const Arguments&... arguments) {
  using Result =
      std::decay_t<std::invoke_result_t<const Function&, M&, const Unwrap<Arguments>&...>>;
  (check_type<Unwrap<Arguments>>(), ...);
  check_type<Result>();
  ReplicaCall call;
  [[maybe_unused]] const auto collect = [&](const auto& argument) {
    call.first_tensor.push_back(call.tensors.size());
    call.is_tensor.push_back(
        std::is_base_of_v<at::Tensor, Unwrap<std::decay_t<decltype(argument)>>>);
    visit_tensors(argument, [&](const at::Tensor& tensor, const Placement& placement) {
      call.tensors.push_back(tensor);
      call.placements.push_back(placement);
    });
  };
  (collect(arguments), ...);

  std::vector<std::optional<Result>> results(num_devices);
  call.run = [&](size_t replica, torch::nn::Module& module, c10::ArrayRef<at::Tensor> tensors) {
    std::tuple<Unwrap<Arguments>...> own(internal::unwrap(arguments)...);
    size_t next = 0;
    visit_tensors(own, [&](at::Tensor& tensor) { tensor = tensors[next++]; });
    results[replica].emplace(std::apply(
        [&](const auto&... argument) -> decltype(auto) {
          return function(dynamic_cast<M&>(module), argument...);
        },
        own));
    std::vector<at::Tensor> found;
    visit_tensors(std::as_const(*results[replica]),
                  [&](const at::Tensor& tensor) { found.push_back(tensor); });
    return found;
  };
  call.placements_of_result = [&](size_t num_replicas) {
    for (size_t r = 1; r < num_replicas; ++r) {
      const auto different = internal::difference(*results[r], *results[0]);
      TORCH_CHECK(!different.has_value(), "[", name, "] cannot join the results: that of replica ",
                  r, *different);
    }
    std::vector<Placement> placements;
    visit_tensors(std::as_const(*results[0]), [&](const at::Tensor&, const Placement& placement) {
      placements.push_back(placement);
    });
    return placements;
  };

  const std::vector<at::Tensor> joined = run_core(call);
  size_t next = 0;
  visit_tensors(*results[0], [&](at::Tensor& tensor) { tensor = joined[next++]; });
  return std::move(*results[0]);
}

}  // namespace lockstep::parallel::internal
