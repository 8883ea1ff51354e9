// SPDX-License-Identifier: Apache-2.0
// Gradients under streams: what LibTorch's engine orders by itself, and what a node must.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "testing/matchers.h"
#include "testing/simdev/checker.h"
#include "testing/simdev/simdev.h"
#include "testing/simdev/stream_test_util.h"
#include "testing/simdev/test_environment.h"

namespace lockstep::simdev {
namespace {

using lockstep::testing::AllClose;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

const bool kDevicesInUse = use_in_tests();

at::Tensor leaf(int index) {
  const at::Tensor tensor = at::ones({64}, device(index)).requires_grad_();
  default_stream(index).synchronize();
  return tensor;
}

// Its backward computes on a stream of its own, and waits for it or not.
template <bool joins>
struct AsideFunction : torch::autograd::Function<AsideFunction<joins>> {
  static at::Tensor forward(AutogradContext* /*context*/, const at::Tensor& x) { return x * 1; }
  static tensor_list backward(AutogradContext* /*context*/, const tensor_list& gradients) {
    const at::Tensor& gradient = gradients[0];
    const c10::Stream current = guard().getStream(gradient.device());
    const c10::Stream aside = side_stream(gradient.device().index());
    order(current, aside);
    gradient.record_stream(aside);
    at::Tensor result = on(aside, [&] { return gradient * 2; });
    if (joins) {
      order(aside, current);
      result.record_stream(current);
    }
    return {result};
  }
};

// Runs work(0), ..., work(n - 1) at once. What one throws fails the test.
void run_threads(int n, const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < n; ++thread) {
    threads.emplace_back([&work, thread] {
      try {
        work(thread);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "thread " << thread << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(AutogradStreamsTest, NodeMustNotLeaveItsGradientOnAPrivateStream) {
  const at::Tensor w = leaf(1);
  const at::Tensor loss = AsideFunction<false>::apply(w * 3).sum();
  EXPECT_TRUE(finds_fault([&] { loss.backward(); }, {"'aten::mul.out' on stream", "of simdev:1"}));
}

TEST(AutogradStreamsTest, NodeMayComputeAsideIfItsStreamWaits) {
  const at::Tensor w = leaf(1);
  AsideFunction<true>::apply(w * 3).sum().backward();
  EXPECT_THAT(w.grad().cpu(), AllClose(at::full({64}, 6.0)));
}

TEST(AutogradStreamsTest, GradientsAreReadyOnTheStreamOfTheCaller) {
  const at::Tensor w = leaf(1);
  const at::Tensor loss = on(side_stream(1), [&] { return (w * 3).tanh().sum(); });
  loss.backward();
  at::add(w.grad(), 1);
}

TEST(AutogradStreamsTest, GradientsAreReadyOnASideStreamThatCalls) {
  const at::Tensor w = leaf(1);
  const at::Tensor loss = (w * 3).sum();
  const c10::Stream side = side_stream(1);
  order(default_stream(1), side);
  on(side, [&] {
    loss.backward();
    at::add(w.grad(), 1);
  });
}

TEST(AutogradStreamsTest, BranchesOnTwoStreamsMeetInOneLeaf) {
  const at::Tensor w = leaf(1);
  const c10::Stream a = side_stream(1), b = side_stream(1);
  const at::Tensor p = on(a, [&] { return (w * 3).tanh(); });
  const at::Tensor q = on(b, [&] { return (w * 5).tanh(); });
  order(a, default_stream(1));
  order(b, default_stream(1));
  (p + q).sum().backward();
  at::add(w.grad(), 1);
}

TEST(AutogradStreamsTest, ReadingAGradientElsewhereNeedsAnEvent) {
  const at::Tensor w = leaf(1);
  (w * 3).sum().backward();
  const c10::Stream side = side_stream(1);
  EXPECT_TRUE(finds_fault([&] { on(side, [&] { at::add(w.grad(), 1); }); }, {"aten::add"}));
  order(default_stream(1), side);
  on(side, [&] { at::add(w.grad(), 1); });
}

TEST(AutogradStreamsTest, GraphsMayCrossDevices) {
  const at::Tensor w = leaf(0);
  const at::Tensor there = (w * 2).to(device(3));
  (there * there).sum().backward();
  EXPECT_THAT(w.grad().cpu(), AllClose(at::full({64}, 8.0)));
}

TEST(AutogradStreamsTest, GraphsMayCrossDevicesOnSideStreams) {
  const at::Tensor w = leaf(0);
  const c10::Stream here = side_stream(0), there = side_stream(3);
  const at::Tensor loss = on(here, [&] {
    return on(there, [&] {
      const at::Tensor moved = (w * 2).to(device(3));
      return (moved * moved).sum();
    });
  });
  loss.backward();
  at::add(w.grad(), 1);
}

TEST(AutogradStreamsTest, TrainingOnASideStreamStepAfterStepIsInOrder) {
  const at::Tensor w = leaf(1);
  const c10::Stream side = side_stream(1);
  for (int step = 0; step < 5; ++step) {
    order(default_stream(1), side);
    const at::Tensor loss = on(side, [&] { return (w * 3).tanh().sum(); });
    loss.backward();
    {
      const at::NoGradGuard no_grad;
      w.sub_(w.grad(), 0.1);
    }
    w.mutable_grad().reset();
  }
}

TEST(AutogradStreamsTest, EightThreadsOfMixedBackwardsAgreeWithTheCpu) {
  constexpr int kSteps = 100;
  std::atomic<int> wrong{0};
  run_threads(8, [&](int thread) {
    for (int step = 0; step < kSteps; ++step) {
      const double value = 1 + thread + 0.5 * step;
      const at::Tensor there =
          at::full({64}, value, device(thread % device_count())).requires_grad_();
      const at::Tensor here = at::full({64}, value).requires_grad_();
      const at::Tensor moved = (there * there).to(device((thread + step) % device_count()));
      (moved * moved.tanh()).sum().backward();
      const at::Tensor square = here * here;
      (square * square.tanh()).sum().backward();
      wrong += at::equal(there.grad().cpu(), here.grad()) ? 0 : 1;
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(take_reports().empty());
}

TEST(AutogradStreamsTest, TensorsMayBeFreedByOtherThreads) {
  std::mutex mutex;
  std::vector<at::Tensor> shared;
  std::atomic<int> wrong{0};
  run_threads(4, [&](int thread) {
    for (int step = 0; step < 300; ++step) {
      const at::Tensor mine =
          at::full({step * 37 % 500 + 1}, thread, at::TensorOptions(device(thread)));
      at::Tensor other;
      {
        const std::lock_guard<std::mutex> lock(mutex);
        shared.push_back(mine);
        if (shared.size() > 30) {
          std::swap(shared[step % 30], shared.back());
          other = std::move(shared.back());
          shared.pop_back();
        }
      }
      if (other.defined()) {
        wrong += (other - other.device().index()).abs().max().item<double>() == 0 ? 0 : 1;
      }
    }
  });
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace lockstep::simdev
