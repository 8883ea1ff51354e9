// SPDX-License-Identifier: Apache-2.0
#include "replicate/sum_router.h"

#include <string>
#include <utility>

#include "autograd_fns/node_ptr.h"
#include "autograd_fns/node_streams.h"
#include "autograd_fns/reduce_add_coalesced.h"

namespace lockstep::replicate::internal {
namespace {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::variable_list;

// See Note [One Node For All Gradients]. Input r * num_tensors + i is replica r's gradient of
// tensor i; output i is the original's.
class SumReplicaGradients : public torch::autograd::Node {
 public:
  SumReplicaGradients(edge_list&& originals, std::vector<c10::Device> devices,
                      comm::CoalesceOptions options)
      : Node(std::move(originals)), devices_(std::move(devices)), options_(options) {}

  std::string name() const override { return "lockstep::SumReplicaGradients"; }

  variable_list apply(variable_list&& gradients) override {
    // The sums are made on this node's own stream, so there is nothing to join.
    const autograd_fns::NodeStreams streams(*this, gradients, devices_);
    const size_t num_tensors = num_outputs();
    std::vector<std::vector<at::Tensor>> by_replica(devices_.size());
    for (size_t r = 0; r < devices_.size(); ++r) {
      by_replica[r].resize(num_tensors);
      for (size_t i = 0; i < num_tensors; ++i) {
        if (task_should_compute_output(i)) {
          by_replica[r][i] = std::move(gradients[r * num_tensors + i]);
        }
      }
    }
    return autograd_fns::reduce_add_coalesced(by_replica, devices_[0], options_);
  }

 private:
  const std::vector<c10::Device> devices_;
  const comm::CoalesceOptions options_;
};

}  // namespace

SumRouter::SumRouter(std::vector<c10::Device> devices, comm::CoalesceOptions options)
    : devices_(std::move(devices)), options_(options) {}

std::vector<edge_list> SumRouter::route(const std::vector<RoutedTensor>& tensors) {
  std::vector<edge_list> edges(devices_.size());
  if (tensors.empty()) {
    return edges;
  }
  edge_list originals;
  originals.reserve(tensors.size());
  for (const RoutedTensor& tensor : tensors) {
    originals.push_back(tensor.edge);
  }
  auto node =
      autograd_fns::make_node<SumReplicaGradients>(std::move(originals), devices_, options_);
  for (size_t r = 0; r < devices_.size(); ++r) {
    edges[r].reserve(tensors.size());
    for (const RoutedTensor& tensor : tensors) {
      edges[r].emplace_back(node, node->add_input_metadata(tensor.replicas[r]));
    }
  }
  return edges;
}

}  // namespace lockstep::replicate::internal
