// SPDX-License-Identifier: Apache-2.0
#include "autograd_fns/scatter.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <c10/core/WrapDimMinimal.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <string>
#include <utility>

#include "autograd_fns/gather.h"
#include "autograd_fns/node_ptr.h"
#include "autograd_fns/node_streams.h"

// Note [Pieces own their memory]
// comm::scatter gives views for pieces on the input's device. Recorded views would share one
// version counter: a model that starts in place (relu_) on one piece would make backward through
// its neighbour fail, and autograd would refuse it altogether for inputs that require grad. Views
// with counters of their own would hide a write to the batch between forward and backward, and
// gradients would be silently wrong. So pieces at home are copied, as those on other devices are:
// in-place use works and never reaches the caller's batch, whatever the devices.

namespace lockstep::autograd_fns {
namespace {

using torch::autograd::variable_list;

class ScatterBackward : public torch::autograd::Node {
 public:
  ScatterBackward(c10::Device source, int64_t dim, comm::DeviceCollectives* collectives)
      : source_(source), dim_(dim), collectives_(collectives) {}

  std::string name() const override { return "lockstep::ScatterBackward"; }

  variable_list apply(variable_list&& grads) override {
    if (std::none_of(grads.begin(), grads.end(), [](const auto& g) { return g.defined(); })) {
      return {at::Tensor()};
    }
    const NodeStreams streams(*this, grads, source_);
    for (size_t i = 0; i < grads.size(); ++i) {
      if (!grads[i].defined()) {
        const auto& piece = input_metadata(i);
        // Made where it is needed, so that no zeros travel.
        grads[i] = at::zeros_symint(piece.shape_as_dim_vector(), piece.options().device(source_));
      }
    }
    at::Tensor gradient = autograd_fns::gather(grads, source_, dim_, {collectives_});
    streams.join();
    return {gradient};
  }

 private:
  c10::Device source_;
  int64_t dim_;
  comm::DeviceCollectives* collectives_;
};

}  // namespace

std::vector<at::Tensor> scatter(const at::Tensor& input, c10::ArrayRef<c10::Device> devices,
                                const comm::ScatterOptions& options) {
  std::vector<at::Tensor> pieces = comm::scatter(input, devices, options);
  {
    const at::NoGradGuard no_grad;
    for (at::Tensor& piece : pieces) {
      if (piece.is_alias_of(input)) {
        piece = piece.clone();
      }
    }
  }
  if (torch::autograd::compute_requires_grad(input)) {
    const auto node = make_node<ScatterBackward>(
        input.device(), c10::maybe_wrap_dim(options.dim, input.dim()), options.collectives);
    node->add_next_edge(torch::autograd::impl::gradient_edge(input));
    torch::autograd::set_history(pieces, node);
  }
  return pieces;
}

}  // namespace lockstep::autograd_fns
