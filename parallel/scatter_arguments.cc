// SPDX-License-Identifier: Apache-2.0
#include "parallel/scatter_arguments.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "autograd_fns/broadcast.h"
#include "autograd_fns/node_ptr.h"
#include "autograd_fns/scatter.h"
#include "comm/coalesce.h"
#include "comm/scatter.h"

namespace lockstep::parallel::internal {

namespace variable = torch::autograd::impl;

Chunks scatter_arguments(const ReplicaCall& call, const std::vector<int64_t>& sizes, int64_t dim,
                         c10::ArrayRef<c10::Device> devices, comm::DeviceCollectives* collectives) {
  Chunks chunks(sizes.size(), std::vector<at::Tensor>(call.tensors.size()));
  for (size_t j = 0; j < call.tensors.size(); ++j) {
    const at::Tensor& tensor = call.tensors[j];
    if (!tensor.defined()) {
      continue;
    }
    std::vector<at::Tensor> pieces;
    if (call.placements[j].whole) {
      comm::CoalesceOptions broadcast;
      broadcast.collectives = collectives;
      pieces = autograd_fns::broadcast({tensor}, devices, broadcast);
      const auto same = std::find(devices.begin(), devices.end(), tensor.device());
      if (same != devices.end()) {
        at::Tensor& shared = pieces[static_cast<size_t>(same - devices.begin())];
        shared = shared.clone();
      }
    } else {
      comm::ScatterOptions scatter;
      scatter.chunk_sizes = sizes;
      scatter.dim = call.placements[j].dim.value_or(dim);
      scatter.collectives = collectives;
      pieces = autograd_fns::scatter(tensor, devices, scatter);
    }
    for (size_t r = 0; r < pieces.size(); ++r) {
      chunks[r][j] = std::move(pieces[r]);
    }
  }
  return chunks;
}

Chunks cut_arguments(const ReplicaCall& call, const std::vector<int64_t>& sizes, int64_t dim,
                     const std::vector<at::Tensor>& inputs, const torch::autograd::edge_list& edges,
                     OwnerId node, ReplicaForward& forward) {
  const auto dim_of = [&](size_t j) { return call.placements[j].dim.value_or(dim); };
  for (size_t j = 0; j < inputs.size(); ++j) {
    forward.input_joins.push_back({call.placements[j].whole, dim_of(j)});
  }
  forward.chunks.resize(sizes.size());
  forward.input_relays.resize(sizes.size());
  // Chunks have memory of their own: a module may write to its input, and must then neither change
  // the caller's batch nor raise the version of what another replica has saved.
  Chunks sources(sizes.size());
  int64_t begin = 0;
  for (size_t r = 0; r < sizes.size(); ++r) {
    const at::NoGradGuard no_grad;
    for (size_t j = 0; j < inputs.size(); ++j) {
      const auto part = [&] {
        return !inputs[j].defined() || call.placements[j].whole
                   ? inputs[j]
                   : inputs[j].narrow(dim_of(j), begin, sizes[r]);
      };
      sources[r].push_back(inputs[j].defined() ? part().detach() : inputs[j]);
      at::Tensor chunk = inputs[j].defined() ? at::empty_like(sources[r].back()) : inputs[j];
      std::shared_ptr<Relay> relay;
      if (edges[j].is_valid()) {
        // Through a recorded narrow(), which knows where in the input the chunk's gradient belongs.
        const at::AutoGradMode recording(true);
        relay = autograd_fns::make_node<Relay>(Relay::Kind::kInput, node, j,
                                               variable::gradient_edge(part()));
        relay->add_input_metadata(chunk);
        variable::set_gradient_edge(chunk, {relay, 0});
      }
      forward.chunks[r].push_back(std::move(chunk));
      forward.input_relays[r].push_back(std::move(relay));
    }
    begin += sizes[r];
  }
  return sources;
}

}  // namespace lockstep::parallel::internal
