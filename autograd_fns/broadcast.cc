// SPDX-License-Identifier: Apache-2.0
#include "autograd_fns/broadcast.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <string>
#include <utility>

#include "autograd_fns/node_ptr.h"
#include "autograd_fns/node_streams.h"
#include "autograd_fns/reduce_add_coalesced.h"
#include "comm/broadcast_coalesced.h"

namespace lockstep::autograd_fns {
namespace {

using torch::autograd::variable_list;

// Gets one gradient per recorded output, device-major, and returns one per recorded tensor.
class BroadcastBackward : public torch::autograd::Node {
 public:
  BroadcastBackward(c10::Device source, const comm::CoalesceOptions& options)
      : source_(source), options_(options) {}

  std::string name() const override { return "lockstep::BroadcastBackward"; }

  variable_list apply(variable_list&& grads) override {
    const NodeStreams streams(*this, grads, source_);
    const size_t tensors = num_outputs();
    std::vector<variable_list> rows;
    for (auto row = grads.begin(); row != grads.end(); row += tensors) {
      rows.emplace_back(std::make_move_iterator(row), std::make_move_iterator(row + tensors));
    }
    variable_list sums = autograd_fns::reduce_add_coalesced(rows, source_, options_);
    streams.join();
    return sums;
  }

 private:
  c10::Device source_;
  comm::CoalesceOptions options_;
};

// A view that shares memory and version counter with `tensor`, and whose gradient is to come from
// a node with several outputs: autograd then refuses to write into it in place.
at::Tensor view_of_output(const at::Tensor& tensor) {
  const at::Tensor base = tensor.is_view() ? at::Tensor(tensor._base()) : tensor;
  return torch::autograd::make_variable_differentiable_view(
      tensor.variable_data(),
      torch::autograd::ViewInfo(base, /*view_fn=*/nullptr, /*rev_view_fn=*/nullptr),
      /*forward_info=*/std::nullopt, /*shared_view_info=*/false,
      torch::autograd::CreationMeta::MULTI_OUTPUT_NODE);
}

}  // namespace

std::vector<at::Tensor> broadcast(at::TensorList tensors, c10::ArrayRef<c10::Device> devices,
                                  const comm::CoalesceOptions& options) {
  const auto rows = comm::broadcast_coalesced(tensors, devices, options);

  std::vector<bool> recorded(tensors.size(), false);
  std::shared_ptr<BroadcastBackward> node;
  for (size_t t = 0; t < tensors.size(); ++t) {
    if (!torch::autograd::compute_requires_grad(tensors[t])) {
      continue;
    }
    if (!node) {
      node = make_node<BroadcastBackward>(tensors[t].device(), options);
    }
    node->add_next_edge(torch::autograd::impl::gradient_edge(tensors[t]));
    recorded[t] = true;
  }

  std::vector<at::Tensor> outputs;
  outputs.reserve(rows.size() * tensors.size());
  for (const auto& row : rows) {
    for (size_t t = 0; t < row.size(); ++t) {
      at::Tensor output = row[t];
      const bool is_source = output.is_same(tensors[t]);
      if (recorded[t]) {
        output = is_source ? view_of_output(output) : output;
        torch::autograd::set_history(output, node);
      } else if (is_source && output.defined() && output.requires_grad()) {
        output = output.detach();
      }
      outputs.push_back(std::move(output));
    }
  }
  return outputs;
}

}  // namespace lockstep::autograd_fns
