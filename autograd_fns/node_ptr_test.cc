// SPDX-License-Identifier: Apache-2.0
#include "autograd_fns/node_ptr.h"

#include <gtest/gtest.h>

#include <utility>

namespace lockstep::autograd_fns {
namespace {

class CountingNode : public torch::autograd::Node {
 public:
  CountingNode(int64_t* alive, int64_t tag) : tag_(tag), alive_(alive) { ++*alive_; }
  ~CountingNode() override { --*alive_; }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    return std::move(grads);
  }
  int64_t tag() const { return tag_; }

 private:
  int64_t tag_;
  int64_t* alive_;
};

TEST(MakeNodeTest, PassesArgumentsAndSharesOwnership) {
  int64_t alive = 0;
  {
    auto node = make_node<CountingNode>(&alive, 7);
    EXPECT_EQ(node->tag(), 7);
    const NodePtr held = node;
    node.reset();
    EXPECT_EQ(alive, 1);
    EXPECT_EQ(held->getptr(), held);
  }
  EXPECT_EQ(alive, 0);
}

TEST(MakeNodeTest, TakesADeepGraphDownWithoutRecursion) {
  int64_t alive = 0;
  const int64_t kDepth = 300000;
  NodePtr end = make_node<CountingNode>(&alive, 0);
  for (int64_t i = 1; i < kDepth; ++i) {
    NodePtr next = make_node<CountingNode>(&alive, i);
    next->add_next_edge({std::move(end), 0});
    end = std::move(next);
  }
  EXPECT_EQ(alive, kDepth);
  end.reset();
  EXPECT_EQ(alive, 0);
}

}  // namespace
}  // namespace lockstep::autograd_fns
