// SPDX-License-Identifier: Apache-2.0
#include "replicate/parameter_containers.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>

#include "replicate/replica_set.h"
#include "replicate/replicas_fixture.h"
#include "replicate/test_modules.h"
#include "testing/device_sets.h"
#include "testing/matchers.h"
#include "testing/random.h"

namespace lockstep::replicate {
namespace {

using lockstep::testing::BitwiseEqual;
using lockstep::testing::random_tensor;
using lockstep::testing::ThrowsError;

class ParameterContainersTest : public ReplicasTest {};
LOCKSTEP_INSTANTIATE_DEVICE_SETS(ParameterContainersTest);

at::Tensor parameter(double value) { return at::full({2}, value, at::kDouble).requires_grad_(); }

// A list and a dict, filled where `in_reset` says; `List` and `Dict` are the holders to use.
template <class List, class Dict>
struct HolderImpl : torch::nn::Cloneable<HolderImpl<List, Dict>> {
  explicit HolderImpl(bool in_reset) : in_reset(in_reset) {
    reset();
    if (!in_reset) {
      fill();
    }
  }
  void reset() override {
    list = this->register_module("list", List());
    dict = this->register_module("dict", Dict());
    if (in_reset) {
      fill();
    }
  }
  void fill() {
    list->append(parameter(1));
    list->append(parameter(2));
    dict->insert("gain", parameter(3));
  }
  at::Tensor forward(const at::Tensor& x) { return x * list[0] * dict["gain"] + list[1]; }

  bool in_reset;
  List list{nullptr};
  Dict dict{nullptr};
};
using Holder = HolderImpl<ParameterList, ParameterDict>;

// kimiyoung/transformer-xl#123, pytorch#40014
TEST_P(ParameterContainersTest, AModuleThatHoldsThemTrainsWhereverTheyWereFilled) {
  for (const bool in_reset : {true, false}) {
    const auto net = placed(std::make_shared<Holder>(in_reset));
    net->list[1].set_requires_grad(false);
    const at::Tensor x = at::ones({1, 2}, at::TensorOptions(at::kDouble).device(first()));
    for (const auto& replica : replicate(net, devices(), options())) {
      ASSERT_EQ(replica->list->size(), 2u);
      EXPECT_EQ(replica->dict->keys(), net->dict->keys());
      EXPECT_FALSE(replica->list[1].requires_grad());
      EXPECT_THAT(replica->forward(beside(*replica, x)).detach(),
                  BitwiseEqual(net->forward(x).detach()));
    }
    expect_gradients_of_one_device<Holder>(net, devices(), [](Holder& m, int64_t i) {
      return m.forward(beside(m, random_tensor({4, 2}, 20 + i))).pow(2).sum();
    });
  }
}

TEST_P(ParameterContainersTest, ASetFollowsEntriesThatAreAppendedLater) {
  const auto net = placed(std::make_shared<Holder>(false));
  ReplicaSet<Holder> set(net, devices(), options());
  net->list->append(parameter(4).detach().to(first()).requires_grad_());
  set.synchronize();
  for (const auto& replica : set.replicas()) {
    ASSERT_EQ(replica->list->size(), 3u);
    replica->list[2].sum().backward();
  }
  EXPECT_THAT(net->list[2].grad().cpu(),
              BitwiseEqual(at::full({2}, static_cast<double>(k()), at::kDouble)));
}

TEST_P(ParameterContainersTest, OneByItselfReplicates) {
  auto list = placed(ParameterList(parameter(1), parameter(2)));
  for (auto& replica : replicate(list, devices(), options())) {
    replica[1].sum().backward();
  }
  EXPECT_THAT(list[1].grad().cpu(),
              BitwiseEqual(at::full({2}, static_cast<double>(k()), at::kDouble)));
}

TEST(ParameterContainersErrorsTest, LibTorchsOwnAreRefusedWithTheOnesToUse) {
  using Lossy = HolderImpl<torch::nn::ParameterList, torch::nn::ParameterDict>;
  const std::vector<c10::Device> two(2, c10::Device(c10::kCPU));
  for (const bool in_reset : {true, false}) {
    const auto net = std::make_shared<Lossy>(in_reset);
    EXPECT_THAT([&] { replicate(net, two); },
                ThrowsError("cannot copy the submodule 'list' of type torch::nn::ParameterList"));
    EXPECT_THAT([&] { replicate(net, two); },
                ThrowsError("use lockstep::replicate::ParameterList"));
  }
}

}  // namespace
}  // namespace lockstep::replicate
