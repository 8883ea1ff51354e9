// SPDX-License-Identifier: Apache-2.0
// Tensors and modules that move: copies of all directions and their counts, save and load,
// module->to().
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim.h>
#include <torch/serialize.h>

#include <memory>
#include <sstream>

#include "testing/matchers.h"
#include "testing/random.h"
#include "testing/simdev/counters.h"
#include "testing/simdev/simdev.h"
#include "testing/simdev/test_environment.h"

namespace lockstep::simdev {
namespace {

using lockstep::testing::BitwiseEqual;
using lockstep::testing::random_tensor;

namespace nn = torch::nn;

const bool kDevicesInUse = use_in_tests();

at::TensorOptions on(int index) { return at::TensorOptions(device(index)); }

TEST(TransferTest, KeepsValuesOnEveryWay) {
  const at::Tensor x = random_tensor({3, 4}, 1);
  const at::Tensor a = x.to(device(1));
  EXPECT_EQ(a.device(), device(1));
  const at::Tensor b = a.to(device(2));
  EXPECT_EQ(b.device(), device(2));
  EXPECT_THAT(b.cpu(), BitwiseEqual(x));
  EXPECT_THAT(a.t().to(device(3)).cpu(), BitwiseEqual(x.t()));
  EXPECT_THAT(a.to(device(3), at::kFloat).cpu(), BitwiseEqual(x.to(at::kFloat)));
}

TEST(TransferTest, KeepsLazyBitsOfComplexTensors) {
  const at::Tensor z = random_tensor({5}, 1, at::kComplexFloat);
  EXPECT_THAT(z.to(device(1)).conj().to(device(2)).cpu(), BitwiseEqual(z.conj().resolve_conj()));
  EXPECT_THAT(z.conj().to(device(1)).cpu(), BitwiseEqual(z.conj().resolve_conj()));
  at::Tensor host = at::empty_like(z);
  host.copy_(z.to(device(1)).conj());
  EXPECT_THAT(host, BitwiseEqual(z.conj().resolve_conj()));
  EXPECT_THAT(at::imag(z.to(device(1)).conj()).cpu(), BitwiseEqual(at::imag(z).neg()));
}

TEST(TransferTest, CountsCopiesAndBytesByDirection) {
  const at::Tensor x = at::ones({10});
  reset_counters();
  const at::Tensor a = x.to(device(1));
  EXPECT_EQ(counters(1).host_to_device_copies, 1);
  EXPECT_EQ(counters(1).host_to_device_bytes, 40);
  const at::Tensor b = a.to(device(2));
  EXPECT_EQ(counters(1).peer_copies, 1);
  EXPECT_EQ(counters(1).peer_bytes, 40);
  EXPECT_EQ(counters(2).peer_copies, 0);
  const at::Tensor c = b.cpu();
  EXPECT_EQ(counters(2).device_to_host_copies, 1);
  EXPECT_EQ(counters(2).device_to_host_bytes, 40);
  EXPECT_EQ(counters(1).kernels, 0);
  const at::Tensor d = a.clone();
  EXPECT_EQ(counters(1).kernels, 1);
}

TEST(TransferTest, CopiesNothingForEmptyTensors) {
  reset_counters();
  EXPECT_EQ(at::empty({0, 3}).to(device(1)).size(1), 3);
  EXPECT_EQ(counters(1).host_to_device_copies, 0);
}

TEST(CountersTest, CountsKernelsAndNamesThemButNoViews) {
  const at::Tensor x = at::ones({4, 4}, on(1));
  reset_counters();
  count_operators(true);
  const at::Tensor y = x.t().narrow(0, 0, 2).view_as(x.slice(0, 0, 2).t().t());
  EXPECT_EQ(counters(1).kernels, 0);
  const at::Tensor z = x + x;
  const at::Tensor w = x.mm(z);
  EXPECT_EQ(counters(1).kernels, 2);
  EXPECT_EQ(counters(1).allocations, 2);
  const auto counts = operator_counts();
  count_operators(false);
  EXPECT_EQ(counts.at("aten::add.out"), 1);
  EXPECT_EQ(counts.at("aten::mm.out"), 1);
}

TEST(CurrentDeviceTest, IsThatOfADeviceWithoutIndex) {
  const c10::DeviceGuard guard(device(3));
  EXPECT_EQ(at::empty({2}, c10::Device(c10::DeviceType::PrivateUse1)).device(), device(3));
  EXPECT_EQ(at::arange(4, c10::Device(c10::DeviceType::PrivateUse1)).device(), device(3));
}

TEST(ModuleTest, MovesBothWaysAndKeepsItsParameters) {
  nn::Linear linear(3, 2);
  const at::Tensor weight = linear->weight, before = weight.detach().clone();
  linear->to(device(1));
  EXPECT_EQ(weight.device(), device(1));
  linear->to(device(2));
  EXPECT_EQ(weight.device(), device(2));
  EXPECT_TRUE(weight.is_leaf() && weight.requires_grad());
  linear->to(at::kCPU);
  EXPECT_TRUE(weight.is_cpu());
  EXPECT_THAT(weight.detach(), BitwiseEqual(before));
}

TEST(ModuleTest, ChangesItsDtypeOnTheDevice) {
  nn::Linear linear(3, 2);
  linear->to(device(1), at::kHalf);
  EXPECT_EQ(linear->weight.scalar_type(), at::kHalf);
  linear->to(at::kDouble);
  EXPECT_EQ(linear->weight.device(), device(1));
}

TEST(ModuleTest, ClonesToAnotherDevice) {
  nn::BatchNorm1d norm(3);
  norm->to(device(1));
  norm(random_tensor({4, 3}, 1, at::kFloat).to(device(1)));
  const auto copy = std::dynamic_pointer_cast<nn::BatchNorm1dImpl>(norm->clone(device(2)));
  EXPECT_EQ(copy->weight.device(), device(2));
  EXPECT_THAT(copy->running_mean.cpu(), BitwiseEqual(norm->running_mean.cpu()));
}

TEST(SaveTest, LoadsModulesOnTheirDeviceOrAnother) {
  nn::Linear linear(3, 2);
  linear->to(device(1));
  std::ostringstream saved;
  torch::save(linear, saved);
  const at::Tensor weight = linear->weight.detach().cpu();
  nn::Linear same(3, 2), host(3, 2), other(3, 2);
  std::istringstream first(saved.str()), second(saved.str()), third(saved.str());
  torch::load(same, first);
  torch::load(host, second, at::Device(at::kCPU));
  torch::load(other, third, device(3));
  EXPECT_EQ(same->weight.device(), device(1));
  EXPECT_TRUE(host->weight.is_cpu());
  EXPECT_EQ(other->weight.device(), device(3));
  for (const nn::Linear& loaded : {same, host, other}) {
    EXPECT_THAT(loaded->weight.detach().cpu(), BitwiseEqual(weight));
  }
}

TEST(SaveTest, LoadsTensorsAndPickles) {
  const at::Tensor x = at::arange(5, on(2));
  std::ostringstream saved;
  torch::save(x, saved);
  std::istringstream stream(saved.str());
  at::Tensor loaded;
  torch::load(loaded, stream);
  EXPECT_EQ(loaded.device(), device(2));
  EXPECT_THAT(loaded, BitwiseEqual(at::arange(5)));
  const at::Tensor unpickled = torch::pickle_load(torch::pickle_save(x)).toTensor();
  EXPECT_THAT(unpickled, BitwiseEqual(at::arange(5)));
}

TEST(SaveTest, LoadsTheStateOfAnOptimizer) {
  nn::Linear linear(3, 2);
  linear->to(device(1));
  torch::optim::Adam adam(linear->parameters());
  linear(at::ones({4, 3}, on(1))).sum().backward();
  adam.step();
  std::ostringstream saved;
  torch::save(adam, saved);
  torch::optim::Adam loaded(linear->parameters());
  std::istringstream stream(saved.str());
  torch::load(loaded, stream);
  void* key = linear->weight.unsafeGetTensorImpl();
  const auto state = [&](torch::optim::Adam& optimizer) {
    return static_cast<torch::optim::AdamParamState&>(*optimizer.state().at(key)).exp_avg();
  };
  EXPECT_EQ(state(loaded).device(), device(1));
  EXPECT_THAT(state(loaded), BitwiseEqual(state(adam)));
}

}  // namespace
}  // namespace lockstep::simdev
