// SPDX-License-Identifier: Apache-2.0
// First-order gradients of DataParallel: equal to those of the same chunks on one device.
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "parallel/data_parallel_fixture.h"

namespace lockstep::parallel {
namespace {

using lockstep::testing::AllClose;
using lockstep::testing::BitwiseEqual;
using lockstep::testing::ThrowsError;

class DataParallelGradientsTest : public DataParallelTest {
 protected:
  // What one device gives for the chunks one after another; leaves no gradients behind.
  std::vector<at::Tensor> chunked_gradients(Mlp net, const at::Tensor& x) const {
    for (const at::Tensor& chunk : x.split_with_sizes(sizes(x.size(0)))) {
      net->forward(chunk).pow(2).sum().backward();
    }
    return take_gradients(*net);
  }

  Mlp make_net() const {
    Mlp net(4, 6, 3);
    fill(*net, 1);
    net->to(first());
    return net;
  }
};
LOCKSTEP_INSTANTIATE_DATA_PARALLEL(DataParallelGradientsTest);

TEST_P(DataParallelGradientsTest, AreThoseOfTheChunksOneAfterAnotherBitForBit) {
  Mlp net = make_net();
  DataParallel parallel(net, devices(), options());
  for (int64_t rows = 1; rows <= 9; ++rows) {
    const at::Tensor x = data({rows, 4}, 10 + rows);
    const at::Tensor output = parallel.forward(x);
    EXPECT_THAT(output.detach(), AllClose(net->forward(x).detach(), {1e-12, 1e-14}));
    output.pow(2).sum().backward();
    const auto gradients = take_gradients(*net);
    expect_same_bits(gradients, chunked_gradients(net, x));
  }
}

TEST_P(DataParallelGradientsTest, AddToThoseThatAreThere) {
  Mlp net = make_net();
  DataParallel parallel(net, devices(), options());
  const at::Tensor x = data({5, 4}, 1);
  parallel.forward(x).pow(2).sum().backward();
  const at::Tensor held = net->a->weight.grad();
  parallel.forward(x).pow(2).sum().backward();
  EXPECT_TRUE(net->a->weight.grad().is_same(held)) << "the user's handle must see the sum";
  auto expected = chunked_gradients(make_net(), x);
  for (at::Tensor& gradient : expected) {
    gradient = gradient * 2;
  }
  expect_close(take_gradients(*net), expected);
}

TEST_P(DataParallelGradientsTest, TwoForwardsMayComeBeforeOneBackward) {
  Mlp net = make_net();
  DataParallel parallel(net, devices(), options());
  const at::Tensor x = data({6, 4}, 1);
  const at::Tensor y = data({3, 4}, 2);
  const at::Tensor first_output = parallel.forward(x);
  const at::Tensor second_output = parallel.forward(y);
  (first_output.pow(2).sum() + second_output.pow(2).sum()).backward();
  const auto gradients = take_gradients(*net);
  net->forward(x).pow(2).sum().backward();
  net->forward(y).pow(2).sum().backward();
  expect_close(gradients, take_gradients(*net));
}

TEST_P(DataParallelGradientsTest, ARetainedGraphIsGoodForAnotherBackward) {
  const auto module = make_function_module(
      2, [](const at::Tensor& w, const at::Tensor& x) { return (x * w).exp(); });
  module->to(first());
  DataParallel parallel(module, devices(), options());
  const at::Tensor x = data({4, 2}, 1);
  const at::Tensor loss = parallel.forward(x).sum();
  loss.backward({}, /*retain_graph=*/true);
  const at::Tensor once = module->weight.grad().clone();
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_THAT(module->weight.grad(), BitwiseEqual(once + once));
  loss.backward();
  EXPECT_THAT(module->weight.grad(), BitwiseEqual(once + once + once));
  EXPECT_THAT([&] { loss.backward(); }, ThrowsError("backward through the graph"));
  EXPECT_THAT(module->weight.grad(), BitwiseEqual(once + once + once));
}

TEST_P(DataParallelGradientsTest, GradAndBackwardForNamedInputsLeaveOtherGradientsAlone) {
  Mlp net = make_net();
  DataParallel parallel(net, devices(), options());
  const at::Tensor x = data({5, 4}, 1);
  const auto expected = chunked_gradients(net, x);

  const auto gradients =
      torch::autograd::grad({parallel.forward(x).pow(2).sum()}, net->parameters());
  expect_same_bits(gradients, expected);
  for (const at::Tensor& gradient : take_gradients(*net)) {
    EXPECT_FALSE(gradient.defined());
  }

  const at::Tensor bias = net->a->bias;
  parallel.forward(x).pow(2).sum().backward({}, std::nullopt, false, at::TensorList(bias));
  const auto some = take_gradients(*net);
  EXPECT_FALSE(some[0].defined());
  EXPECT_THAT(some[1], BitwiseEqual(expected[1]));
  EXPECT_FALSE(some[2].defined());
  EXPECT_FALSE(some[3].defined());
}

TEST_P(DataParallelGradientsTest, FlowToTheInputs) {
  Mlp net = make_net();
  DataParallel parallel(net, devices(), options());
  for (const int64_t rows : {1, 4, 5}) {
    const at::Tensor x = data({rows, 4}, 1).requires_grad_();
    const at::Tensor serial = x.detach().clone().requires_grad_();
    // Twice the input on the way: its gradient goes on into the user's graph.
    parallel.forward(x * 2).pow(2).sum().backward();
    net->forward(serial * 2).pow(2).sum().backward();
    EXPECT_THAT(x.grad(), AllClose(serial.grad(), {1e-12, 1e-14}));

    const at::Tensor alone = torch::autograd::grad({parallel.forward(x).pow(2).sum()}, {x})[0];
    EXPECT_THAT(alone * 1.0, AllClose(torch::autograd::grad({net->forward(x).pow(2).sum()}, {x})[0],
                                      {1e-12, 1e-14}));
  }
}

TEST_P(DataParallelGradientsTest, FlowToInputsThroughAFrozenModule) {
  Mlp net = make_net();
  for (at::Tensor& parameter : net->parameters()) {
    parameter.set_requires_grad(false);
  }
  DataParallel parallel(net, devices(), options());
  const at::Tensor x = data({4, 4}, 1);
  EXPECT_FALSE(parallel.forward(x).requires_grad());
  const at::Tensor leaf = x.clone().requires_grad_();
  const at::Tensor serial = x.clone().requires_grad_();
  parallel.forward(leaf).pow(2).sum().backward();
  net->forward(serial).pow(2).sum().backward();
  EXPECT_THAT(leaf.grad(), AllClose(serial.grad(), {1e-12, 1e-14}));
  EXPECT_FALSE(net->a->weight.grad().defined());
}

TEST_P(DataParallelGradientsTest, AnUpstreamGradientMayBeExpandedOrStrided) {
  Mlp net = make_net();
  DataParallel parallel(net, devices(), options());
  const at::Tensor x = data({6, 4}, 1);
  for (const at::Tensor& upstream : {at::ones({1, 1}, x.options()).expand({6, 3}),
                                     data({3, 6}, 2).t(), data({6, 6}, 3).slice(1, 0, 6, 2)}) {
    parallel.forward(x).backward(upstream);
    const auto gradients = take_gradients(*net);
    net->forward(x).backward(upstream);
    expect_close(gradients, take_gradients(*net));
  }
}

TEST_P(DataParallelGradientsTest, HooksOfOriginalsRunOnceOnTheSumAndTheirResultCounts) {
  Scale module(3);
  module->to(first());
  DataParallel parallel(module, devices(), options());
  int calls = 0;
  at::Tensor seen;
  module->weight.register_hook([&](const at::Tensor& gradient) {
    ++calls;
    seen = gradient.clone();
    return gradient * 10;
  });
  const auto rows = static_cast<int64_t>(num_devices());
  const at::Tensor x = at::ones({rows, 3}, at::kDouble).to(first());
  parallel.forward(x).sum().backward();
  EXPECT_EQ(calls, 1);
  const at::Tensor sum = at::full({3}, static_cast<double>(rows), x.options());
  EXPECT_THAT(seen, BitwiseEqual(sum));
  EXPECT_THAT(module->weight.grad(), BitwiseEqual(sum * 10));
}

struct CountingHook : torch::autograd::PostAccumulateGradHook {
  void operator()(const at::Tensor& tensor) override {
    ++calls;
    seen = tensor.grad().clone();
  }
  int calls = 0;
  at::Tensor seen;
};

TEST_P(DataParallelGradientsTest, HooksAfterAccumulationRunOnceWithTheSumInPlace) {
  Scale module(3);
  module->to(first());
  DataParallel parallel(module, devices(), options());
  auto hook = std::make_unique<CountingHook>();
  CountingHook& counts = *hook;
  torch::autograd::impl::set_post_acc_grad_hooks(module->weight, std::move(hook));
  const auto rows = static_cast<int64_t>(num_devices());
  parallel.forward(at::ones({rows, 3}, at::kDouble).to(first())).sum().backward();
  EXPECT_EQ(counts.calls, 1);
  EXPECT_THAT(counts.seen,
              BitwiseEqual(at::full({3}, static_cast<double>(rows), module->weight.options())));
}

TEST_P(DataParallelGradientsTest, OriginalsMayBeUsedDirectlyInTheSameLoss) {
  Mlp net = make_net();
  DataParallel parallel(net, devices(), options());
  const at::Tensor x = data({5, 4}, 1);
  const auto loss = [&](const at::Tensor& output) {
    return output.pow(2).sum() + 0.1 * net->a->weight.pow(2).sum() + net->forward(x).sum();
  };
  loss(parallel.forward(x)).backward();
  const auto gradients = take_gradients(*net);
  loss(net->forward(x)).backward();
  expect_close(gradients, take_gradients(*net));
}

TEST_P(DataParallelGradientsTest, ALeafFromOutsideTheModuleGetsItsGradient) {
  const at::Tensor outside = at::full({3}, 2.0, at::kDouble).to(first()).requires_grad_();
  const auto module = make_function_module(3, [outside](const at::Tensor& w, const at::Tensor& x) {
    return x * w * outside.to(x.device());
  });
  module->to(first());
  DataParallel parallel(module, devices(), options());
  const at::Tensor x = data({5, 3}, 1);
  parallel.forward(x).sum().backward();
  EXPECT_THAT(outside.grad(), AllClose(x.sum(0), {1e-12, 1e-14}));
  EXPECT_THAT(module->weight.grad(), AllClose(2 * x.sum(0), {1e-12, 1e-14}));
}

TEST_P(DataParallelGradientsTest, ParametersMayBeFrozenAndThawedBetweenSteps) {
  Mlp net = make_net();
  net->a->weight.set_requires_grad(false);
  DataParallel parallel(net, devices(), options());
  const at::Tensor x = data({5, 4}, 1);
  for (const bool trainable : {false, true, false, true}) {
    net->a->weight.set_requires_grad(trainable);
    const at::Tensor output = parallel.forward(x);
    output.pow(2).sum().backward();
    const auto gradients = take_gradients(*net);
    EXPECT_EQ(gradients[0].defined(), trainable);
    expect_same_bits(gradients, chunked_gradients(net, x));
  }
  for (at::Tensor& parameter : net->parameters()) {
    parameter.set_requires_grad(false);
  }
  EXPECT_FALSE(parallel.forward(x).requires_grad());
}

TEST_P(DataParallelGradientsTest, AParameterThatOneReplicaUsesGetsItsGradient) {
  // Only the rows of 1 use the weight; they are all in the last chunk.
  const auto module = make_function_module(2, [](const at::Tensor& w, const at::Tensor& x) {
    return x[0][0].item<double>() > 0 ? x * w : x * 1.0;
  });
  module->to(first());
  DataParallel parallel(module, devices(), options());
  const auto rows = static_cast<int64_t>(num_devices());
  at::Tensor x = at::zeros({rows, 2}, at::kDouble).to(first());
  x[rows - 1].fill_(1);
  parallel.forward(x).sum().backward();
  EXPECT_THAT(module->weight.grad(), BitwiseEqual(at::ones({2}, x.options())));
  take_gradients(*module);

  x.fill_(0).requires_grad_();
  parallel.forward(x).sum().backward();
  EXPECT_FALSE(module->weight.grad().defined()) << "no replica used it";
  EXPECT_THAT(x.grad(), BitwiseEqual(at::ones({rows, 2}, x.options())));
}

TEST_P(DataParallelGradientsTest, AGraphFromBeforeAnUpdateThrows) {
  Mlp net = make_net();
  DataParallel parallel(net, devices(), options());
  const at::Tensor x = data({6, 4}, 1);
  const at::Tensor loss = parallel.forward(x).pow(2).sum();
  {
    const at::NoGradGuard no_grad;
    net->b->weight.mul_(0.5);
  }
  parallel.forward(x);
  EXPECT_THAT([&] { loss.backward(); }, ThrowsError("modified by an inplace operation"));
  parallel.forward(x).pow(2).sum().backward();
}

TEST_P(DataParallelGradientsTest, AreNotChangedByAModuleThatWritesToItsInput) {
  // Each replica works on its chunk in place; neither the caller's batch nor another replica's
  // saved values may be touched by that.
  if (num_devices() == 1) {
    GTEST_SKIP() << "on one device the module gets the caller's own tensor";
  }
  const auto module = make_function_module(2, [](const at::Tensor& w, const at::Tensor& x) {
    at::Tensor y = x;
    y.mul_(2);
    const at::Tensor z = y * w;
    return z * w;
  });
  module->to(first());
  DataParallel parallel(module, devices(), options());
  const at::Tensor x = data({8, 2}, 1);
  const at::Tensor before = x.clone();
  for (int repeat = 0; repeat < 20; ++repeat) {
    parallel.forward(x).sum().backward();
    EXPECT_THAT(x, BitwiseEqual(before));
  }
  EXPECT_THAT(module->weight.grad(), AllClose(20 * 4 * before.sum(0), {1e-12, 1e-13}));
}

TEST_P(DataParallelGradientsTest, TheOutputMayBeChangedInPlace) {
  Mlp net = make_net();
  DataParallel parallel(net, devices(), options());
  const at::Tensor x = data({6, 4}, 1);
  at::Tensor output = parallel.forward(x);
  output.mul_(3);
  output.sum().backward();
  const auto gradients = take_gradients(*net);
  (net->forward(x) * 3).sum().backward();
  expect_close(gradients, take_gradients(*net));
}

TEST_P(DataParallelGradientsTest, AnUnusedOutputCostsNothing) {
  Mlp net = make_net();
  DataParallel parallel(net, devices(), options());
  const at::Tensor x = data({6, 4}, 1);
  (parallel.forward(x).detach().sum() + net->a->bias.sum()).backward();
  const auto gradients = take_gradients(*net);
  EXPECT_FALSE(gradients[0].defined());
  EXPECT_THAT(gradients[1], BitwiseEqual(at::ones({6}, x.options())));
}

TEST_P(DataParallelGradientsTest, ASecondBackwardOfOneGraphNeedsItRetained) {
  Mlp net(2, 3, 1);
  fill(*net, 1);
  net->to(first());
  DataParallel parallel(net, devices(), options());
  const at::Tensor out = parallel.forward(data({6, 2}, 1));
  out.sum().backward({}, /*retain_graph=*/true);
  const auto once = take_gradients(*net);
  out.sum().backward();
  expect_same_bits(take_gradients(*net), once);
  EXPECT_THAT([&] { out.sum().backward(); }, ThrowsError("a second time"));
  for (const at::Tensor& gradient : take_gradients(*net)) {
    EXPECT_FALSE(gradient.defined());
  }
}

TEST_P(DataParallelGradientsTest, AComputedTensorFromOutsideIsExplainedWhereItCannotBeServed) {
  const at::Tensor leaf = at::ones({2}, at::kDouble).to(first()).requires_grad_();
  const at::Tensor outside = leaf.exp();
  const auto module = make_function_module(
      2, [&](const at::Tensor& w, const at::Tensor& x) { return x * w * outside.to(x.device()); });
  module->to(first());
  DataParallel parallel(module, devices(), options());
  const at::Tensor x = at::ones({6, 2}, at::kDouble).to(first());
  const auto backward = [&](bool retain) { parallel.forward(x).sum().backward({}, retain); };
  if (GetParam().engine == BackwardEngine::kPerReplica) {
    EXPECT_THAT([&] { backward(false); }, ThrowsError("use BackwardEngine::kWholeGraph"));
  } else {
    backward(false);
    EXPECT_THAT(leaf.grad(), AllClose(outside.detach() * 6, {1e-12, 1e-13}));
  }
}

}  // namespace
}  // namespace lockstep::parallel
