// SPDX-License-Identifier: Apache-2.0
// node_ptr: the one place that knows how LibTorch owns the nodes of its autograd graph.
// Make every node of your own through make_node and hold it as NodePtr: LibTorch 2.11 holds nodes
// by std::shared_ptr and from 2.13 on by an intrusive pointer; then only this file changes.
//   auto node = lockstep::autograd_fns::make_node<MyBackward>(dim);
//   torch::autograd::set_history(output, node);
#pragma once

#include <torch/csrc/autograd/function.h>

#include <memory>
#include <utility>

namespace lockstep::autograd_fns {

using NodePtr = std::shared_ptr<torch::autograd::Node>;

// Makes a node of type T, a subclass of torch::autograd::Node, that may be the end of a graph of
// any depth: the graph is taken down without recursion.
// Threads: safe, as far as T's constructor is.
template <class T, class... Args>
std::shared_ptr<T> make_node(Args&&... args) {
  return std::shared_ptr<T>(new T(std::forward<Args>(args)...), torch::autograd::deleteNode);
}

}  // namespace lockstep::autograd_fns
