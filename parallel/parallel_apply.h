// SPDX-License-Identifier: Apache-2.0
// parallel_apply.h: runs replica i on input i, all at the same time.
// Use it after replicate() and scatter(), or with callables of your own; DataParallel does all of
// it in one.
//
//   lockstep::parallel::WorkerPool pool;
//   auto outputs = lockstep::parallel::parallel_apply(pool, replicas, inputs);
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/Exception.h>

#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "comm/current_streams.h"
#include "parallel/failure.h"
#include "parallel/nested_tensors.h"
#include "parallel/worker_pool.h"

namespace lockstep::parallel {
namespace internal {

// Normalises devices, or finds them: that of the first tensor in each input.
std::vector<c10::Device> devices_of_replicas(c10::ArrayRef<c10::Device> given,
                                             const std::vector<std::optional<c10::Device>>& found);

template <class Replica, class... Arguments>
decltype(auto) call_replica(Replica& replica, Arguments&&... arguments) {
  if constexpr (std::is_invocable_v<Replica&, Arguments&&...>) {
    return replica(std::forward<Arguments>(arguments)...);
  } else {
    return replica->forward(std::forward<Arguments>(arguments)...);
  }
}

template <class Replica, class Input>
decltype(auto) apply_replica(Replica& replica, const Input& input) {
  if constexpr (IsTuple<Input>::value) {
    return std::apply(
        [&](const auto&... arguments) -> decltype(auto) {
          return call_replica(replica, arguments...);
        },
        input);
  } else {
    return call_replica(replica, input);
  }
}

}  // namespace internal

// Returns what replica i makes of inputs[i], for every i, in order.
//
// A replica is a pointer or holder of a module, whose forward() is called, or anything that can be
// called itself. An input is one argument, or a std::tuple of all of them. A result may be of any
// type, undefined tensors included. Each worker takes over the caller's thread-local state
// (WorkerPool::try_run); its current device is replica i's, and on all the replicas' devices the
// current streams are the caller's. A single replica runs on the calling thread.
//
// Devices: devices[i] is that of replica i; if the list is empty, that of the first tensor in
//          inputs[i]. Tensors in a result that are elsewhere are moved there.
// Grad:    recorded as if every replica had run by itself.
// Throws:  c10::Error if the lists differ in length, or an input holds no tensor and no devices are
//          given (it names the replica). What replicas throw is thrown once all have ended: the one
//          with the lowest index, see failure.h.
// Threads: may be called from several threads and from inside a replica.
template <class Replica, class Input>
auto parallel_apply(WorkerPool& pool, const std::vector<Replica>& replicas,
                    const std::vector<Input>& inputs, c10::ArrayRef<c10::Device> devices = {},
                    const RunOptions& options = {}) {
  using Result = std::decay_t<decltype(internal::apply_replica(std::declval<Replica&>(),
                                                               std::declval<const Input&>()))>;
  TORCH_CHECK(inputs.size() == replicas.size(), "[parallel_apply] expected an input for each of ",
              replicas.size(), " replicas, got ", inputs.size());
  TORCH_CHECK(devices.empty() || devices.size() == replicas.size(),
              "[parallel_apply] expected a device for each of ", replicas.size(), " replicas, got ",
              devices.size());
  std::vector<std::optional<c10::Device>> found(inputs.size());
  if (devices.empty()) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      internal::visit_tensors(inputs[i], [&](const at::Tensor& tensor) {
        if (!found[i].has_value() && tensor.defined()) {
          found[i] = tensor.device();
        }
      });
    }
  }
  const std::vector<c10::Device> places = internal::devices_of_replicas(devices, found);
  const auto streams = comm::current_streams(places);
  std::vector<std::optional<Result>> results(replicas.size());
  const auto thrown = pool.try_run(
      static_cast<int64_t>(replicas.size()),
      [&](int64_t i) {
        const c10::MultiStreamGuard same_streams(streams);
        const c10::DeviceGuard device(places[i]);
        // A copy of the handle, so that calling it needs no const forward.
        Replica replica = replicas[i];
        results[i].emplace(internal::apply_replica(replica, inputs[i]));
        internal::visit_tensors(*results[i], [&](at::Tensor& tensor) {
          if (tensor.defined() && tensor.device() != places[i]) {
            tensor = tensor.to(places[i]);
          }
        });
      },
      options);
  internal::throw_first_failure(thrown, places);
  std::vector<Result> outputs;
  outputs.reserve(results.size());
  for (auto& result : results) {
    outputs.push_back(std::move(*result));
  }
  return outputs;
}

}  // namespace lockstep::parallel
