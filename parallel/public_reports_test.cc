// SPDX-License-Identifier: Apache-2.0
// Faults of data parallel training that people reported in public, cut down to their numbers. What
// other suites of this folder prove with the same numbers is not repeated here.
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <atomic>
#include <sstream>

#include "parallel/data_parallel_fixture.h"
#include "replicate/replicatable.h"
#include "testing/gradcheck.h"
#include "testing/warnings.h"

namespace lockstep::parallel {
namespace {

using lockstep::testing::AllClose;
using lockstep::testing::BitwiseEqual;
using lockstep::testing::ThrowsError;
using lockstep::testing::Warnings;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class PublicReportsTest : public DataParallelTest {
 protected:
  at::Tensor ones(at::IntArrayRef shape) const { return at::ones(shape, at::kDouble).to(first()); }
  std::shared_ptr<FunctionModule> identity() const {
    auto module = make_function_module(1, [](const at::Tensor&, const at::Tensor& x) { return x; });
    module->to(first());
    return module;
  }
};
LOCKSTEP_INSTANTIATE_DATA_PARALLEL(PublicReportsTest);

// --- gradients ---------------------------------------------------------------------------------

// pytorch#5851
TEST_P(PublicReportsTest, OnlyTheForwardUnderNoGradIsUntrackedInEveryReplica) {
  std::atomic<size_t> tracked{0};
  const auto module = make_function_module(2, [&](const at::Tensor& w, const at::Tensor& x) {
    at::Tensor y = x * w;
    tracked += y.requires_grad();
    return y;
  });
  module->to(first());
  DataParallel parallel(module, devices(), options());
  for (const bool recording : {true, false, true}) {
    const at::AutoGradMode mode(recording);
    EXPECT_EQ(parallel.forward(data({8, 2}, 1)).requires_grad(), recording);
    EXPECT_EQ(tracked.exchange(0), recording ? num_devices() : 0);
  }
}

// pytorch#38493, pytorch#49828, huggingface/transformers#8145
TEST_P(PublicReportsTest, ForwardMayAskForDtypeAndDeviceOfItsParameters) {
  struct Net : torch::nn::Cloneable<Net> {
    Net() { Net::reset(); }
    void reset() override { register_parameter("weight", at::zeros({2}, at::kDouble)); }
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor parameter = parameters().at(0);
      return at::full({x.size(0)}, parameter.device().index(), parameter.options()) + parameter[0];
    }
  };
  const auto net = std::make_shared<Net>();
  net->to(first());
  DataParallel parallel(net, devices(), options());
  std::vector<double> indices;
  for (const c10::Device device : devices()) {
    indices.push_back(device.index());
  }
  const auto rows = static_cast<int64_t>(num_devices());
  EXPECT_THAT(parallel.forward(at::zeros({rows, 2}).to(first())).detach(),
              BitwiseEqual(at::tensor(indices, at::kDouble)));
}

// mlverse/torch#968, mlverse/torch#986, pytorch/torchdistx#10
TEST_P(PublicReportsTest, ATensorAndALayerWithTwoNamesStayOneAndAreSteppedOnce) {
  struct Net : torch::nn::Cloneable<Net> {
    Net() { Net::reset(); }
    void reset() override {
      a = register_parameter("a", at::ones({2}, at::kDouble));
      b = register_parameter("b", a);
      one = register_module("one", torch::nn::Linear(2, 2));
      other = register_module("other", one);
    }
    at::Tensor forward(const at::Tensor& x) { return x * a + x * b + one(x) + other(x); }
    at::Tensor a, b;
    torch::nn::Linear one{nullptr}, other{nullptr};
  };
  const auto net = std::make_shared<Net>();
  net->to(first(), at::kDouble);
  DataParallel parallel(net, devices(), options());
  torch::optim::SGD optimizer(parallel.parameters(), 0.1);
  parallel.forward(ones({2, 2})).sum().backward();
  for (const auto& replica : parallel.replicas()) {
    EXPECT_EQ(replica->a.data_ptr(), replica->b.data_ptr());
    EXPECT_EQ(replica->one.get(), replica->other.get());
  }
  EXPECT_THAT(net->a.grad().cpu(), BitwiseEqual(at::full({2}, 4.0, at::kDouble)));
  EXPECT_THAT(net->one->weight.grad().cpu(), BitwiseEqual(at::full({2, 2}, 4.0, at::kDouble)));
  const at::Tensor bias = net->one->bias.detach().clone();
  optimizer.step();
  EXPECT_THAT(net->b.detach().cpu(), AllClose(at::full({2}, 0.6, at::kDouble)));
  EXPECT_THAT(net->other->bias.detach(), AllClose(bias - 0.4));
}

// pytorch#40581, pytorch#18837, jolibrain/deepdetect#1045
TEST_P(PublicReportsTest, TenStepsSeeTheWeightsOfTheLastWithoutAnotherReset) {
  struct Net : torch::nn::Cloneable<Net> {
    Net() { Net::reset(); }
    void reset() override {
      ++*resets;
      weight = register_parameter("weight", at::tensor({1.0, 2.0}, at::kDouble));
    }
    at::Tensor forward(const at::Tensor& x) { return (x * weight).sum(1); }
    std::shared_ptr<std::atomic<int>> resets = std::make_shared<std::atomic<int>>(0);
    at::Tensor weight;
  };
  const auto net = std::make_shared<Net>();
  net->to(first());
  DataParallel parallel(net, devices(), options());
  torch::optim::SGD optimizer(parallel.parameters(), 0.1);
  const int resets = *net->resets;
  for (int step = 0; step < 10; ++step) {
    optimizer.zero_grad();
    const at::Tensor output = parallel.forward(ones({4, 2}));
    EXPECT_THAT(output.detach().cpu(), AllClose(at::full({4}, 3 - 0.8 * step, at::kDouble)));
    output.sum().backward();
    EXPECT_THAT(net->weight.grad().cpu(), BitwiseEqual(at::full({2}, 4.0, at::kDouble)));
    optimizer.step();
  }
  EXPECT_EQ(*net->resets, resets);
}

// y = x * slope + shift, both buffers from outside.
struct LineImpl : torch::nn::Module, replicate::Replicatable {
  LineImpl(const at::Tensor& slope, const at::Tensor& shift)
      : slope(register_buffer("slope", slope)), shift(register_buffer("shift", shift)) {}
  std::shared_ptr<torch::nn::Module> make_replica() const override {
    return std::make_shared<LineImpl>(at::zeros({1}), at::zeros({1}));
  }
  at::Tensor forward(const at::Tensor& x) { return x * slope + shift; }
  at::Tensor slope, shift;
};

TEST_P(PublicReportsTest, ABufferThatRequiresGradGetsItAndAnotherDoesNot) {
  const at::Tensor x = data({2, 100}, 1);
  const at::Tensor shift = data({100}, 2);
  const at::Tensor slope = data({100}, 3).requires_grad_();
  const auto line = std::make_shared<LineImpl>(slope, shift);
  DataParallel parallel(line, devices(), options());
  const at::Tensor output = parallel.forward(x);
  EXPECT_THAT(output.detach(), AllClose((x * slope + shift).detach(), {1e-12, 1e-12}));
  output.sum().backward();
  EXPECT_THAT(slope.grad(), AllClose(x.sum(0), {1e-12, 1e-12}));
  EXPECT_FALSE(shift.requires_grad() || shift.grad().defined());
  const auto function = [&](const std::vector<at::Tensor>& in) {
    return std::vector<at::Tensor>{
        data_parallel(std::make_shared<LineImpl>(in[0], shift), x, devices())};
  };
  EXPECT_TRUE(lockstep::testing::gradcheck(function, {slope}));
}

TEST_P(PublicReportsTest, AComplexParameterGivesAComplexResult) {
  struct Shift : torch::nn::Cloneable<Shift> {
    Shift() { Shift::reset(); }
    void reset() override {
      shift = register_parameter("shift", at::zeros({1, 10}, at::kComplexFloat));
    }
    at::Tensor forward(const at::Tensor& x) { return x + shift; }
    at::Tensor shift;
  };
  const auto module = std::make_shared<Shift>();
  module->to(first());
  DataParallel parallel(module, devices(), options());
  const at::Tensor x = lockstep::testing::random_tensor({4, 10}, 1, at::kComplexFloat).to(first());
  for (const bool recording : {true, false}) {
    const at::AutoGradMode mode(recording);
    EXPECT_THAT(parallel.forward(x).detach(), BitwiseEqual(x));
    EXPECT_THAT(parallel.forward(x.narrow(0, 0, 1)).detach(), BitwiseEqual(x.narrow(0, 0, 1)));
  }
  at::real(parallel.forward(x)).sum().backward();
  EXPECT_THAT(module->shift.grad().cpu(), BitwiseEqual(at::full({1, 10}, 4.0, at::kComplexFloat)));
}

// --- modules -----------------------------------------------------------------------------------

// pytorch#1500, and a comment on pytorch#20910
TEST_P(PublicReportsTest, ABareTensorThatTheModuleNamesIsCopiedToEveryReplica) {
  struct Bare : torch::nn::Module, replicate::Replicatable {
    std::shared_ptr<torch::nn::Module> make_replica() const override {
      return std::make_shared<Bare>();
    }
    void visit_extra_tensors(const TensorVisitor& visit) override { visit("q", q); }
    at::Tensor forward(const at::Tensor& x) { return x * q; }
    at::Tensor q = at::full({2}, 3.0, at::kDouble);
  };
  const auto module = std::make_shared<Bare>();
  module->q = module->q.to(first());
  DataParallel parallel(module, devices(), options());
  const at::Tensor x = ones({2 * static_cast<int64_t>(num_devices()), 2});
  for (int call = 0; call < 2; ++call) {
    EXPECT_THAT(parallel.forward(x), BitwiseEqual(x * 3));
    const auto replicas = parallel.replicas();
    for (size_t r = 1; r < replicas.size(); ++r) {
      EXPECT_EQ(replicas[r]->q.device(), devices()[r]);
      replicas[r]->q.fill_(-1);
    }
    EXPECT_THAT(module->q.cpu(), BitwiseEqual(at::full({2}, 3.0, at::kDouble)));
  }
}

// pytorch#3805, pytorch#9176
TEST_P(PublicReportsTest, AWrappedModuleIsSavedUnderTheKeysOfABareOneAndSoIsAReplica) {
  Mlp net(2, 3, 1);
  fill(*net, 1);
  net->to(first());
  DataParallel parallel(net, devices(), options());
  parallel.forward(data({4, 2}, 1)).sum().backward();
  const auto reload = [](const auto& module) {
    std::stringstream file;
    torch::save(module, file);
    Mlp bare(2, 3, 1);
    torch::load(bare, file);
    return bare;
  };
  for (const Mlp& bare :
       {reload(net), reload(parallel.module()), reload(parallel.replicas().back())}) {
    EXPECT_EQ(bare->named_parameters().keys(), net->named_parameters().keys());
    expect_same_bits(bare->parameters(), net->parameters());
  }
}

TEST_P(PublicReportsTest, AutocastMayBeSwitchedOnInsideForward) {
  struct Net : torch::nn::Cloneable<Net> {
    Net() { Net::reset(); }
    void reset() override { linear = register_module("linear", torch::nn::Linear(3, 2)); }
    at::Tensor forward(const at::Tensor& x) {
      at::autocast::set_autocast_enabled(x.device().type(), true);
      at::Tensor y = linear(x);
      at::autocast::clear_cache();
      at::autocast::set_autocast_enabled(x.device().type(), false);
      return y;
    }
    torch::nn::Linear linear{nullptr};
  };
  const auto net = std::make_shared<Net>();
  net->to(first());
  DataParallel parallel(net, devices(), options());
  const at::Tensor output = parallel.forward(at::ones({8, 3}).to(first()));
  EXPECT_EQ(output.scalar_type(), at::autocast::get_autocast_dtype(first().type()));
  EXPECT_FALSE(at::autocast::is_autocast_enabled(first().type()));
  output.sum().backward();
  EXPECT_THAT(net->linear->bias.grad().cpu(), BitwiseEqual(at::full({2}, 8.0f)));
}

// --- devices -----------------------------------------------------------------------------------

// Lightning-AI/pytorch-lightning#8634, pytorch#1051, NVIDIA/nccl#103
TEST_P(PublicReportsTest, ADeviceListedTwiceIsTwoReplicasWithTheRightSum) {
  torch::nn::Linear linear(torch::nn::LinearOptions(2, 1).bias(false));
  linear->to(first());
  DataParallel parallel(linear, {first(), first()}, options());
  const auto replicas = parallel.replicas();
  ASSERT_EQ(replicas.size(), 2u);
  EXPECT_NE(replicas[0], replicas[1]);
  for (int step = 1; step <= 2; ++step) {
    parallel.forward(at::ones({4, 2}).to(first())).sum().backward();
    EXPECT_THAT(linear->weight.grad().cpu(), BitwiseEqual(at::full({1, 2}, 4.0f * step)));
  }
}

// pytorch#17129
TEST_P(PublicReportsTest, AModuleElsewhereIsRefusedByNameAndNotMoved) {
  const auto expect_refused = [&](const auto& module, c10::Device place) {
    const auto* const memory = module->weight.unsafeGetTensorImpl()->data();
    const auto refused = ThrowsError("parameter 'weight' is on " + place.str() +
                                     ", but the first device of the list is " + first().str());
    for (const auto& list : {devices(), std::vector<c10::Device>{first()}}) {
      EXPECT_THAT([&] { DataParallel(module, list, options()); }, refused);
      EXPECT_THAT([&] { data_parallel(module, at::ones({4, 2}).to(first()), list); }, refused);
    }
    EXPECT_EQ(module->weight.device(), place);
    EXPECT_EQ(module->weight.unsafeGetTensorImpl()->data(), memory);
  };
  expect_refused(std::make_shared<ElsewhereModule>(), c10::Device(c10::kMeta));
  for (const c10::Device place : {c10::Device(c10::kCPU), devices().back()}) {
    if (place != first()) {
      torch::nn::Linear linear(2, 2);
      linear->to(place);
      expect_refused(linear, place);
    }
  }
}

// pytorch#2150
TEST(PublicReportsErrorsTest, AnEmptyDeviceListIsNamedAsSuch) {
  Scale module(2);
  EXPECT_THAT([&] { DataParallel(module, {}); },
              ThrowsError("[DataParallel] expected at least one device, got an empty list"));
  EXPECT_THAT(
      [&] {
        data_parallel(module, at::ones({2, 2}), std::vector<c10::Device>{});
      },
      ThrowsError("[data_parallel] expected at least one device, got an empty list"));
}

// microsoft/onnxruntime#24010, pytorch#164208
TEST_P(PublicReportsTest, TheCurrentDeviceIsTheCallersAlsoAfterAThrow) {
  const c10::impl::VirtualGuardImpl guard(first().type());
  const auto module =
      make_function_module(2, [&](const at::Tensor&, const at::Tensor& x) -> at::Tensor {
        EXPECT_EQ(guard.getDevice(), x.device());
        throw std::domain_error("on every replica");
      });
  module->to(first());
  DataParallel parallel(module, devices(), options());
  const at::Tensor x = data({8, 2}, 1);
  const c10::DeviceGuard elsewhere(devices().back());
  EXPECT_THROW(parallel.forward(x), std::domain_error);
  EXPECT_EQ(guard.getDevice(), devices().back());
}

TEST_P(PublicReportsTest, ASingleDeviceCallsTheModuleItselfWithTheCallersTensor) {
  const auto module = identity();
  DataParallel parallel(module, {first()}, options());
  const at::Tensor x = data({5, 2}, 1);
  EXPECT_TRUE(parallel.forward(x).is_same(x));
  EXPECT_EQ(parallel.replicas().front(), module);
}

// pytorch#28077, pytorch#37484
TEST_P(PublicReportsTest, AChannelsLastBatchComesBackAsItWas) {
  const auto module = identity();
  DataParallel parallel(module, devices(), options());
  const at::Tensor x = at::arange(4 * 2 * 3 * 3, at::kDouble)
                           .view({4, 2, 3, 3})
                           .contiguous(at::MemoryFormat::ChannelsLast)
                           .to(first());
  const at::Tensor output = parallel.forward(x);
  EXPECT_TRUE(output.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_FALSE(output.is_contiguous());
  EXPECT_THAT(output, BitwiseEqual(x));
}

TEST_P(PublicReportsTest, ScalarOutputsOfSeveralReplicasComeWithAWarning) {
  const auto module = make_function_module(
      2, [](const at::Tensor& w, const at::Tensor& x) { return (x * w).sum(); });
  module->to(first());
  DataParallel parallel(module, devices(), options());
  for (const int64_t rows : {1, 8}) {
    Warnings warnings;
    parallel.forward(data({rows, 2}, 1));
    if (num_devices() == 1) {
      EXPECT_THAT(warnings.messages, IsEmpty()) << rows << " rows";
    } else {
      EXPECT_THAT(warnings.messages, ElementsAre(HasSubstr("weighted by the replicas' rows")))
          << rows << " rows";
    }
  }
}

std::atomic<size_t> ranges_seen{0};

TEST_P(PublicReportsTest, AProfilerOfTheCallerSeesTheRangesOfEveryReplica) {
  const auto module = make_function_module(2, [](const at::Tensor& w, const at::Tensor& x) {
    RECORD_USER_SCOPE("one replica");
    return x * w;
  });
  module->to(first());
  DataParallel parallel(module, devices(), options());
  const auto count = [](const at::RecordFunction& range) -> std::unique_ptr<at::ObserverContext> {
    ranges_seen += std::string(range.name()) == "one replica";
    return nullptr;
  };
  ranges_seen = 0;
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(count).scopes({at::RecordScope::USER_SCOPE}));
  parallel.forward(data({8, 2}, 1));
  at::removeCallback(handle);
  EXPECT_EQ(ranges_seen, num_devices());
  parallel.forward(data({8, 2}, 1));
  EXPECT_EQ(ranges_seen, num_devices()) << "workers must not keep what they took over";
}

}  // namespace
}  // namespace lockstep::parallel
