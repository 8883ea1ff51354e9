// SPDX-License-Identifier: Apache-2.0
// DataParallel used by several threads, inside itself, and given up early.
#include <pthread.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "parallel/data_parallel_fixture.h"

namespace lockstep::parallel {
namespace {

using lockstep::testing::AllClose;
using lockstep::testing::BitwiseEqual;

class DataParallelLifetimeTest : public DataParallelTest {};
LOCKSTEP_INSTANTIATE_DATA_PARALLEL(DataParallelLifetimeTest);

TEST_P(DataParallelLifetimeTest, TwoThreadsMayStepTheSameObject) {
  Scale module(3);
  module->to(first());
  DataParallel parallel(module, devices(), options());
  const auto train = [&](double value) {
    const at::Tensor x = at::full({8, 3}, value, at::kDouble).to(first());
    for (int step = 0; step < 100; ++step) {
      parallel.forward(x).sum().backward();
    }
  };
  std::thread other(train, 2.0);
  train(1.0);
  other.join();
  // Small whole numbers: exact in any order.
  EXPECT_THAT(module->weight.grad(),
              BitwiseEqual(at::full({3}, 100 * 8 * 3.0, module->weight.options()).detach()));
}

TEST_P(DataParallelLifetimeTest, TheGraphLivesOnWithoutTheObject) {
  Mlp net(2, 3, 1);
  fill(*net, 1);
  net->to(first());
  const at::Tensor x = data({6, 2}, 1);
  at::Tensor loss;
  std::weak_ptr<MlpImpl> last_replica;
  {
    DataParallel parallel(net, devices(), options());
    last_replica = parallel.replicas().back();
    loss = parallel.forward(x).pow(2).sum();
  }
  loss.backward();
  const auto gradients = take_gradients(*net);
  net->forward(x).pow(2).sum().backward();
  expect_close(gradients, take_gradients(*net));
  loss.reset();
  EXPECT_EQ(last_replica.expired(), num_devices() > 1) << "nothing holds the replicas any more";
}

TEST_P(DataParallelLifetimeTest, AGraphMayBeDroppedWithoutBackward) {
  Mlp net(2, 3, 1);
  net->to(first());
  std::weak_ptr<MlpImpl> last_replica;
  {
    DataParallel parallel(net, devices(), options());
    for (int step = 0; step < 20; ++step) {
      const at::Tensor loss = parallel.forward(data({6, 2}, 1)).sum();
    }
    last_replica = parallel.replicas().back();
    parallel.forward(data({6, 2}, 1)).sum().backward();
  }
  EXPECT_EQ(last_replica.expired(), num_devices() > 1);
}

TEST_P(DataParallelLifetimeTest, TheOriginalMayOnlyLiveInTheObjectAndItsGraph) {
  at::Tensor loss;
  at::Tensor weight;
  std::weak_ptr<ScaleImpl> original;
  {
    Scale module(2);
    module->to(first());
    original = module.ptr();
    weight = module->weight;
    DataParallel parallel(module, devices(), options());
    loss = parallel.forward(at::ones({4, 2}, at::kDouble).to(first())).sum();
  }
  loss.backward();
  EXPECT_THAT(weight.grad(), BitwiseEqual(at::full({2}, 4.0, weight.options()).detach()));
  loss.reset();
  EXPECT_TRUE(original.expired());
}

TEST_P(DataParallelLifetimeTest, RecordedGraphsLeaveNoCycle) {
  Mlp net(2, 3, 1);
  net->to(first());
  std::weak_ptr<MlpImpl> last_replica;
  {
    DataParallel parallel(net, devices(), options());
    last_replica = parallel.replicas().back();
    const at::Tensor x = data({6, 2}, 1).requires_grad_();
    parallel.forward(x).sum().backward({}, true, /*create_graph=*/true);
    x.mutable_grad() = at::Tensor();
    take_gradients(*net);
  }
  EXPECT_EQ(last_replica.expired(), num_devices() > 1);
}

// Calls the function on a thread whose stack has no room for a deep recursion.
void run_with_small_stack(std::function<void()> function) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 512 * 1024), 0);
  pthread_t thread;
  const auto run = [](void* argument) -> void* {
    (*static_cast<std::function<void()>*>(argument))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, &function), 0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  ASSERT_EQ(pthread_attr_destroy(&attributes), 0);
}

TEST_P(DataParallelLifetimeTest, AGraphThatTheModuleRemembersKeepsItsOwnInputs) {
  // Many times over: a later forward's node may lie where an earlier one's did.
  for (int round = 0; round < 20; ++round) {
    // Every replica has a copy of the function, and with it a memory of its own.
    const auto module = make_function_module(
        2, [previous = at::Tensor()](const at::Tensor& w, const at::Tensor& x) mutable {
          at::Tensor y = x * w;
          y = previous.defined() ? y + previous : y;
          previous = y;
          return y;
        });
    module->to(first());
    DataParallel parallel(module, devices(), options());
    const auto rows = static_cast<int64_t>(2 * num_devices());
    const at::Tensor x1 = at::ones({rows, 2}, at::kDouble).to(first()).requires_grad_();
    const at::Tensor x2 = at::ones({rows, 2}, at::kDouble).to(first()).requires_grad_();
    parallel.forward(x1);
    parallel.forward(x2).sum().backward();
    EXPECT_THAT(x1.grad(), BitwiseEqual(at::ones_like(x1).detach()));
    EXPECT_THAT(x2.grad(), BitwiseEqual(at::ones_like(x2).detach()));
    EXPECT_THAT(module->weight.grad().cpu(),
                BitwiseEqual(at::full({2}, 2.0 * static_cast<double>(rows), at::kDouble)));
  }
}

TEST_P(DataParallelLifetimeTest, AChainOfManyForwardsIsTakenDownWithoutRecursion) {
  Scale module(1);
  module->to(first());
  DataParallel parallel(module, devices(), options());
  at::Tensor x = at::ones({static_cast<int64_t>(num_devices()), 1}, at::kDouble).to(first());
  x.requires_grad_();
  for (int i = 0; i < 3000; ++i) {
    x = parallel.forward(x);
  }
  run_with_small_stack([&] { x.reset(); });
  EXPECT_FALSE(x.defined());
}

// The outer module runs an inner data_parallel() for its own child, from its own device on.
struct OuterImpl : torch::nn::Cloneable<OuterImpl> {
  explicit OuterImpl(std::vector<c10::Device> devices) : devices(std::move(devices)) {
    OuterImpl::reset();
  }
  void reset() override { net = register_module("net", Mlp(2, 3, 2)); }
  at::Tensor forward(const at::Tensor& x) {
    auto from_here = devices;
    std::rotate(from_here.begin(), std::find(from_here.begin(), from_here.end(), x.device()),
                from_here.end());
    return data_parallel(net, x * 2, from_here) * 3;
  }
  std::vector<c10::Device> devices;
  Mlp net{nullptr};
};
TORCH_MODULE(Outer);

TEST_P(DataParallelLifetimeTest, OneMayRunInsideAnother) {
  Outer outer(devices());
  fill(*outer, 1);
  outer->to(first());
  DataParallel parallel(outer, devices(), options());
  for (int step = 0; step < 3; ++step) {
    const at::Tensor x = data({9, 2}, 1).requires_grad_();
    const at::Tensor serial = x.detach().clone().requires_grad_();
    parallel.forward(x).pow(2).sum().backward();
    const auto gradients = take_gradients(*outer);
    (outer->net->forward(serial * 2) * 3).pow(2).sum().backward();
    expect_close(gradients, take_gradients(*outer));
    EXPECT_THAT(x.grad(), AllClose(serial.grad(), {1e-12, 1e-13}));
  }
}

TEST_P(DataParallelLifetimeTest, ReplicasMayShareAnotherObject) {
  Mlp net(2, 3, 2);
  fill(*net, 1);
  net->to(first());
  const auto inner = std::make_shared<DataParallel<MlpImpl>>(net, devices(), options());
  const auto module = make_function_module(
      2, [inner](const at::Tensor& w, const at::Tensor& x) { return inner->forward(x * w); });
  module->to(first());
  DataParallel parallel(module, devices(), options());
  const at::Tensor x = data({9, 2}, 1);
  parallel.forward(x).pow(2).sum().backward();
  auto gradients = take_gradients(*net);
  gradients.push_back(take_gradients(*module)[0]);
  net->forward(x * module->weight).pow(2).sum().backward();
  auto expected = take_gradients(*net);
  expected.push_back(take_gradients(*module)[0]);
  expect_close(gradients, expected);
}

TEST_P(DataParallelLifetimeTest, TwoObjectsMayShareOneModule) {
  Mlp net(2, 3, 2);
  fill(*net, 1);
  net->to(first());
  DataParallel one(net, devices(), options());
  DataParallel other(net, devices(), options());
  const at::Tensor x = data({5, 2}, 1);
  (one.forward(x).sum() + other.forward(x).pow(2).sum()).backward();
  const auto gradients = take_gradients(*net);
  (net->forward(x).sum() + net->forward(x).pow(2).sum()).backward();
  expect_close(gradients, take_gradients(*net));
}

TEST_P(DataParallelLifetimeTest, OutputsMayBeFedToAnotherObject) {
  Mlp encoder(2, 3, 2);
  Mlp decoder(2, 3, 2);
  fill(*encoder, 1);
  fill(*decoder, 2);
  encoder->to(first());
  decoder->to(first());
  DataParallel encode(encoder, devices(), options());
  DataParallel decode(decoder, devices(), options());
  const at::Tensor x = data({7, 2}, 1);
  decode.forward(encode.forward(x)).pow(2).sum().backward();
  auto gradients = take_gradients(*encoder);
  decoder->zero_grad();
  decoder->forward(encoder->forward(x)).pow(2).sum().backward();
  expect_close(gradients, take_gradients(*encoder));
}

}  // namespace
}  // namespace lockstep::parallel
