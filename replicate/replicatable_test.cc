// SPDX-License-Identifier: Apache-2.0
#include "replicate/replicatable.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/parameterdict.h>
#include <torch/nn/modules/container/parameterlist.h>

#include "replicate/module_tensors.h"
#include "replicate/replica_set.h"
#include "replicate/replicas_fixture.h"
#include "replicate/replicate.h"
#include "replicate/test_modules.h"
#include "testing/device_sets.h"
#include "testing/matchers.h"
#include "testing/random.h"

namespace lockstep::replicate {
namespace {

using lockstep::testing::AllClose;
using lockstep::testing::BitwiseEqual;
using lockstep::testing::random_tensor;
using lockstep::testing::ThrowsError;
using torch::nn::Module;

// y = x * weight * scale; scale is in no registry. make_replica() is the plain copy constructor of
// everything but the registry, as a hasty user writes it.
struct ScaledImpl : Module, Replicatable {
  explicit ScaledImpl(int64_t width)
      : weight(register_parameter("weight", random_tensor({width}, 1))) {}

  std::shared_ptr<Module> make_replica() const override {
    auto twin = std::make_shared<ScaledImpl>(weight.size(0));
    twin->scale = scale;
    twin->optional = optional;
    twin->alias = alias;
    return twin;
  }
  void visit_extra_tensors(const TensorVisitor& visit) override {
    visit("scale", scale);
    visit("optional", optional);
    visit("alias", alias);
  }
  at::Tensor forward(const at::Tensor& x) const { return x * weight * scale; }

  at::Tensor weight;
  at::Tensor scale = at::full({1}, 3.0, at::kDouble);
  at::Tensor optional;
  at::Tensor alias;
};

class ReplicatableTest : public ReplicasTest {
 protected:
  // Module::to() moves what is registered; the extra tensors are the test's to move.
  std::shared_ptr<ScaledImpl> make_scaled() const {
    auto net = placed(std::make_shared<ScaledImpl>(3));
    net->scale = net->scale.to(first());
    return net;
  }
  at::Tensor full(at::IntArrayRef sizes, double value) const {
    return at::full(sizes, value, at::TensorOptions(at::kDouble).device(first()));
  }
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS(ReplicatableTest);

TEST_P(ReplicatableTest, AModuleWithoutCloneTrainsThroughMakeReplica) {
  const auto net = make_scaled();
  expect_gradients_of_one_device<ScaledImpl>(net, devices(), [](ScaledImpl& m, int64_t i) {
    return m.forward(beside(m, random_tensor({2, 3}, 10 + i))).pow(2).sum();
  });
}

TEST_P(ReplicatableTest, ExtraTensorsAreSharedByReplicaZeroAndOwnedByTheOthers) {
  const auto net = make_scaled();
  const auto replicas = replicate(net, devices());
  EXPECT_TRUE(replicas[0]->scale.is_alias_of(net->scale));
  for (size_t r = 0; r < replicas.size(); ++r) {
    EXPECT_FALSE(replicas[r]->scale.is_same(net->scale));
    EXPECT_THAT(replicas[r]->scale, BitwiseEqual(net->scale));
    EXPECT_FALSE(replicas[r]->optional.defined());
    if (r > 0) {
      EXPECT_FALSE(replicas[r]->scale.is_alias_of(net->scale));
      replicas[r]->scale.fill_(-1);
    }
  }
  EXPECT_THAT(net->scale, BitwiseEqual(at::full({1}, 3.0, at::kDouble)));
}

TEST_P(ReplicatableTest, ExtraTensorsAreRefreshedAndFollowReplacement) {
  const auto net = make_scaled();
  ReplicaSet<ScaledImpl> set(net, devices());
  net->scale.fill_(5);
  set.synchronize();
  for (const auto& replica : set.replicas()) {
    EXPECT_THAT(replica->scale, BitwiseEqual(net->scale));
  }
  net->scale = full({2}, 7.0);
  net->optional = full({4}, 1.0);
  set.synchronize();
  for (const auto& replica : set.replicas()) {
    EXPECT_THAT(replica->scale, BitwiseEqual(net->scale));
    EXPECT_THAT(replica->optional, BitwiseEqual(net->optional));
  }
  net->optional = at::Tensor();
  set.synchronize();
  for (const auto& replica : set.replicas()) {
    EXPECT_FALSE(replica->optional.defined());
  }
}

TEST_P(ReplicatableTest, AnExtraTensorThatRequiresGradGetsTheSum) {
  const auto net = make_scaled();
  net->scale.set_requires_grad(true);
  const auto replicas = replicate(net, devices());
  const at::Tensor x = data({3}, 2);
  for (const auto& replica : replicas) {
    replica->forward(beside(*replica, x)).sum().backward();
  }
  const at::Tensor each = (x * net->weight.detach()).sum().reshape({1});
  EXPECT_THAT(net->scale.grad(), AllClose(each * static_cast<double>(k()), {1e-12, 1e-12}));
}

TEST_P(ReplicatableTest, AnExtraTensorThatIsAParameterStaysTiedToIt) {
  const auto net = make_scaled();
  net->alias = net->weight;
  for (const auto& replica : replicate(net, devices())) {
    EXPECT_TRUE(replica->alias.is_alias_of(replica->weight));
    (replica->alias.sum() + replica->weight.sum()).backward();
  }
  EXPECT_THAT(net->weight.grad(), BitwiseEqual(full({3}, 2.0 * static_cast<double>(k()))));
}

struct ListsImpl : Module, Replicatable {
  ListsImpl() {
    list->append(at::ones({2}, at::kDouble).requires_grad_());
    list->append(at::full({2}, 2.0, at::kDouble).requires_grad_());
    dict->insert("gain", at::full({2}, 3.0, at::kDouble).requires_grad_());
    register_module("list", list);
    register_module("dict", dict);
  }
  std::shared_ptr<Module> make_replica() const override { return std::make_shared<ListsImpl>(); }
  at::Tensor forward(const at::Tensor& x) { return x * list[0] * dict["gain"] + list[1]; }

  torch::nn::ParameterList list;
  torch::nn::ParameterDict dict;
};

TEST_P(ReplicatableTest, ParameterListAndParameterDictInsideTrain) {
  const auto net = placed(std::make_shared<ListsImpl>());
  ASSERT_EQ(unique_parameters(*net).size(), 3);
  expect_gradients_of_one_device<ListsImpl>(net, devices(), [](ListsImpl& m, int64_t i) {
    return m.forward(beside(m, random_tensor({4, 2}, 20 + i))).pow(2).sum();
  });
}

TEST_P(ReplicatableTest, AParameterDictAloneReplicatesByAFactory) {
  torch::OrderedDict<std::string, at::Tensor> entries;
  entries.insert("gain", at::full({2}, 3.0, at::kDouble).requires_grad_());
  const auto dict = placed(torch::nn::ParameterDict(entries));
  EXPECT_THAT([&] { replicate(dict, devices()); }, ThrowsError("(gain)"));
  ReplicateOptions chosen = options();
  chosen.factory = [] {
    torch::OrderedDict<std::string, at::Tensor> empty;
    empty.insert("gain", at::zeros({1}, at::kDouble).requires_grad_());
    return std::make_shared<torch::nn::ParameterDictImpl>(empty);
  };
  for (auto& replica : replicate(dict, devices(), chosen)) {
    EXPECT_THAT(replica["gain"].detach(), BitwiseEqual(at::full({2}, 3.0, at::kDouble)));
    replica["gain"].sum().backward();
  }
  EXPECT_THAT(dict->parameters()[0].grad(), BitwiseEqual(full({2}, static_cast<double>(k()))));
}

// Names what it is told to name.
struct NamesImpl : Module, Replicatable {
  NamesImpl(std::vector<std::string> own, std::vector<std::string> of_twin)
      : names(std::move(own)), twin_names(std::move(of_twin)) {}
  std::shared_ptr<Module> make_replica() const override {
    return std::make_shared<NamesImpl>(twin_names, twin_names);
  }
  void visit_extra_tensors(const TensorVisitor& visit) override {
    for (const std::string& name : names) {
      visit(name, tensor);
    }
  }
  std::vector<std::string> names;
  std::vector<std::string> twin_names;
  at::Tensor tensor = at::ones({1});
};

TEST_P(ReplicatableTest, ExtraTensorsOfBothMustHaveTheSameNames) {
  using Names = std::vector<std::string>;
  const auto attempt = [&](const Names& own, const Names& of_twin) {
    const auto net = std::make_shared<NamesImpl>(own, of_twin);
    net->tensor = net->tensor.to(first());
    replicate(net, devices());
  };
  EXPECT_THAT([&] { attempt({"a", "a"}, {"a"}); }, ThrowsError("names 'a' twice"));
  EXPECT_THAT([&] { attempt({"a"}, {"b"}); },
              ThrowsError("of the copy names 'b', which the original does not"));
  EXPECT_THAT(
      [&] {
        attempt({"a", "b"}, {"a"});
      },
      ThrowsError("names 1 tensors, of the original 2"));
}

struct OtherType : ScaledImpl {
  using ScaledImpl::ScaledImpl;
};

TEST_P(ReplicatableTest, AReplicaOfAnotherTypeIsRefused) {
  const auto net = placed(std::make_shared<OtherType>(3));
  net->scale = net->scale.to(first());
  EXPECT_THAT([&] { replicate(net, devices()); }, ThrowsError("expected a copy of type"));
  EXPECT_THAT([&] { ReplicaSet<OtherType>(net, devices()); },
              ThrowsError("make_replica() or the factory makes another type"));
}

// A Cloneable parent makes the child in reset(); the child's own extra tensors still follow.
struct ParentImpl : torch::nn::Cloneable<ParentImpl> {
  ParentImpl() { reset(); }
  void reset() override { child = register_module("child", std::make_shared<ScaledImpl>(3)); }
  at::Tensor forward(const at::Tensor& x) const { return child->forward(x); }
  std::shared_ptr<ScaledImpl> child;
};

TEST_P(ReplicatableTest, AReplicatableInsideACloneableThatMakesItInResetWorks) {
  const auto net = placed(std::make_shared<ParentImpl>());
  net->child->scale = full({1}, 11.0);
  for (const auto& replica : replicate(net, devices())) {
    EXPECT_THAT(replica->child->scale, BitwiseEqual(net->child->scale));
    EXPECT_FALSE(replica->child->scale.is_same(net->child->scale));
  }
  expect_gradients_of_one_device<ParentImpl>(net, devices(), [](ParentImpl& m, int64_t i) {
    return m.forward(beside(m, random_tensor({2, 3}, 30 + i))).sum();
  });
}

}  // namespace
}  // namespace lockstep::replicate
