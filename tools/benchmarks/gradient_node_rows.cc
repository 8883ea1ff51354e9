// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/gradient_node_rows.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd_fns/broadcast.h"
#include "autograd_fns/node_ptr.h"
#include "tools/benchmarks/libtorch_peer.h"
#include "tools/benchmarks/models.h"

namespace lockstep::benchmarks {
namespace {

constexpr size_t kOurs = 0;
constexpr size_t kPeer = 1;
constexpr size_t kLimit = 2;
constexpr int64_t kElements = 16;

using Tensors = std::vector<at::Tensor>;

// A node that returns what was put into it and looks at nothing.
class ReadyNode : public torch::autograd::Node {
 public:
  void put(Tensors results) { results_ = std::move(results); }
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override {
    return std::move(results_);
  }

 private:
  Tensors results_;
};

// `count` tensors whose gradients go to the inputs 0, 1, ... of `node`.
Tensors roots_of(const autograd_fns::NodePtr& node, size_t count) {
  Tensors roots;
  for (size_t i = 0; i < count; ++i) {
    at::Tensor root = at::empty({kElements});
    const uint32_t input = node->add_input_metadata(root);
    torch::autograd::impl::set_gradient_edge(root, torch::autograd::Edge(node, input));
    roots.push_back(root);
  }
  return roots;
}

void clear_gradients(const Tensors& parameters) {
  for (const at::Tensor& parameter : parameters) parameter.mutable_grad().reset();
}

Tensors gradients_of(const Tensors& parameters) {
  Tensors gradients;
  for (const at::Tensor& parameter : parameters) gradients.push_back(parameter.grad());
  return gradients;
}

bool all_equal(const Tensors& gradients, const at::Tensor& expected) {
  return std::all_of(gradients.begin(), gradients.end(), [&](const at::Tensor& gradient) {
    return gradient.defined() && at::equal(gradient, expected);
  });
}

void measure_case(Session& session, int64_t n, bool captured) {
  const std::string name = "n" + std::to_string(n) + (captured ? "-captured" : "");
  if (!session.wants_case(name)) return;
  const auto module = std::make_shared<ManyParameters>(n, kElements);
  const Tensors parameters = module->parameters();

  // Gradients that tell the replicas apart; device-major, like the outputs of broadcast.
  Tensors gradients;
  for (const float value : {0.25F, 3.0F}) {
    for (int64_t i = 0; i < n; ++i) gradients.push_back(at::full({kElements}, value));
  }
  const at::Tensor expected = at::full({kElements}, 3.25F);

  const std::vector<c10::Device> devices{c10::Device(at::kCPU), c10::Device(at::kCPU)};
  const Tensors our_roots = autograd_fns::broadcast(parameters, devices);
  const auto peer_replicas = libtorch_peer::replicate(module);
  Tensors peer_roots;
  for (const auto& replica : peer_replicas) {
    for (const at::Tensor& parameter : replica->parameters()) peer_roots.push_back(parameter);
  }
  const auto ready = autograd_fns::make_node<ReadyNode>();
  ready->set_next_edges(torch::autograd::collect_next_edges(parameters));
  const Tensors ready_roots = roots_of(ready, gradients.size());

  Tensors results;  // of the last step, where they are captured
  const auto backward_from = [&](const Tensors& roots) -> std::function<void()> {
    if (captured) {
      return [&] {
        results = torch::autograd::grad(roots, parameters, gradients, /*retain_graph=*/true);
      };
    }
    return [&] { torch::autograd::backward(roots, gradients, /*retain_graph=*/true); };
  };
  const auto clear = [&] {
    clear_gradients(parameters);
    results.clear();
  };
  bool ours_right = true;
  bool peer_right = true;
  const auto check_into = [&](bool& right) {
    return [&] {
      right = right && all_equal(captured ? results : gradients_of(parameters), expected);
    };
  };
  const auto prepare_ready_node = [&] {
    clear();
    Tensors ready_results;
    for (int64_t i = 0; i < n; ++i) ready_results.push_back(at::empty({kElements}));
    ready->put(std::move(ready_results));
  };
  const std::vector<Side> sides{
      {"broadcast node", backward_from(our_roots), nullptr, clear, check_into(ours_right)},
      {"ReduceAdd nodes", backward_from(peer_roots), nullptr, clear, check_into(peer_right)},
      {"ready node", backward_from(ready_roots), nullptr, prepare_ready_node}};
  const PairedRun run(sides, {{kPeer, kOurs}, {kLimit, kOurs}}, session.paired_options(),
                      process_meter());
  session.check(ours_right, "P18 " + name + ": a gradient is not the sum over the replicas");
  session.check(peer_right, "P18 " + name + ": a gradient of LibTorch's is not the sum");
  session.add_case({"P18", name, "us", kOurs, kPeer, kLimit}, run);
}

}  // namespace

void measure_gradient_nodes(Session& session) {
  if (!session.wants("P18")) return;
  for (const bool captured : {false, true}) {
    for (const int64_t n : {10, 100, 1000}) measure_case(session, n, captured);
  }
  session.add_geomean("P18");
}

}  // namespace lockstep::benchmarks
