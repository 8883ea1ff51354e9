// SPDX-License-Identifier: Apache-2.0
#include "autograd_fns/gather.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/WrapDimMinimal.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "autograd_fns/node_ptr.h"
#include "autograd_fns/node_streams.h"
#include "autograd_fns/scatter.h"

namespace lockstep::autograd_fns {
namespace {

using torch::autograd::variable_list;

// How the inputs of one gather lie in its result.
struct Layout {
  std::vector<c10::Device> devices;
  std::vector<int64_t> sizes;  // along dim
  int64_t dim;
  bool scalars;  // inputs without dimension became elements of a vector
};

class GatherBackward : public torch::autograd::Node {
 public:
  GatherBackward(Layout layout, comm::DeviceCollectives* collectives)
      : layout_(std::move(layout)), collectives_(collectives) {}

  std::string name() const override { return "lockstep::GatherBackward"; }

  variable_list apply(variable_list&& grads) override {
    if (!grads[0].defined()) {
      return variable_list(layout_.devices.size());
    }
    const NodeStreams streams(*this, grads, layout_.devices);
    comm::ScatterOptions options;
    options.chunk_sizes = layout_.sizes;
    options.dim = layout_.dim;
    options.collectives = collectives_;
    variable_list pieces = autograd_fns::scatter(grads[0], layout_.devices, options);
    if (layout_.scalars) {
      for (at::Tensor& piece : pieces) {
        piece = piece.squeeze(0);
      }
    }
    streams.join();
    return pieces;
  }

 private:
  Layout layout_;
  comm::DeviceCollectives* collectives_;
};

bool are_scalars_along_dim_0(at::TensorList inputs, int64_t dim) {
  return !inputs.empty() && (dim == 0 || dim == -1) &&
         std::all_of(inputs.begin(), inputs.end(),
                     [](const auto& input) { return input.defined() && input.dim() == 0; });
}

}  // namespace

at::Tensor gather(at::TensorList inputs, c10::Device destination, int64_t dim,
                  const comm::GatherOptions& options) {
  const bool scalars = are_scalars_along_dim_0(inputs, dim);
  std::vector<at::Tensor> joined = inputs.vec();
  if (scalars) {
    TORCH_WARN_ONCE(
        "[gather] the inputs have no dimension to join along dim 0: they become a vector");
    const at::NoGradGuard no_grad;
    for (at::Tensor& input : joined) {
      input = input.unsqueeze(0);
    }
  }
  at::Tensor result = comm::gather(joined, destination, dim, options);

  if (torch::autograd::compute_requires_grad(inputs)) {
    Layout layout{{}, {}, c10::maybe_wrap_dim(dim, result.dim()), scalars};
    for (const at::Tensor& input : joined) {
      layout.devices.push_back(input.device());
      layout.sizes.push_back(input.size(layout.dim));
    }
    const auto node = make_node<GatherBackward>(std::move(layout), options.collectives);
    node->set_next_edges(torch::autograd::collect_next_edges(inputs));
    torch::autograd::set_history(result, node);
  }
  return result;
}

}  // namespace lockstep::autograd_fns
