// SPDX-License-Identifier: Apache-2.0
// Forwards of any signature: what reaches the replicas.
#include <string>
#include <tuple>

#include "parallel/data_parallel_of_fixture.h"

namespace lockstep::parallel {

// A struct of the user's, as an argument and as a result.
struct Sample {
  at::Tensor image;                 // [N, 2]
  std::optional<at::Tensor> state;  // [3, N]
  at::Tensor table;                 // the same for all rows
  int64_t epoch = 0;
};

template <>
struct TensorMembers<Sample> {
  template <class S>
  static auto of(S& s) {
    return members(s.image, split_along(s.state, 1), to_all_replicas(s.table));
  }
};

namespace {

using lockstep::testing::AllClose;
using lockstep::testing::BitwiseEqual;
using lockstep::testing::ThrowsError;

class DataParallelArgumentsTest : public DataParallelOfTest {};
LOCKSTEP_INSTANTIATE_DATA_PARALLEL(DataParallelArgumentsTest);

// --- arguments -------------------------------------------------------------------------------

// Says what each replica got; out = x, plus the mask if there is one.
struct MixedImpl : torch::nn::Cloneable<MixedImpl> {
  void reset() override {}
  at::Tensor forward(const at::Tensor& x, const std::optional<at::Tensor>& mask, int flag,
                     const std::vector<at::Tensor>& both) {
    TORCH_CHECK(both.size() == 2 && both[0].size(0) == x.size(0) && both[1].size(0) == x.size(0));
    TORCH_CHECK(flag == 7);
    return (mask.has_value() ? x + *mask : x) + both[0] * 10 + both[1] * 100;
  }
};

// pytorch#33185, #3779
TEST_P(DataParallelArgumentsTest, AbsentFlagsAndListsReachEveryReplica) {
  auto parallel = parallel_of(std::make_shared<MixedImpl>());
  const at::Tensor x = data({4, 1}, 1);
  const std::vector<at::Tensor> both{data({4, 1}, 2), data({4, 1}, 3)};
  const at::Tensor expected = x + both[0] * 10 + both[1] * 100;
  EXPECT_THAT(parallel.forward(x, std::nullopt, 7, both), BitwiseEqual(expected));
  EXPECT_THAT(parallel.forward(x, std::optional<at::Tensor>(), 7, both), BitwiseEqual(expected));
  const at::Tensor mask = data({4, 1}, 4);
  EXPECT_THAT(parallel.forward(x, mask, 7, both),
              BitwiseEqual((x + mask) + both[0] * 10 + both[1] * 100));
}

struct SecondOfSecond : torch::nn::Cloneable<SecondOfSecond> {
  using Inner = std::pair<at::Tensor, at::Tensor>;
  void reset() override {}
  at::Tensor forward(const std::tuple<at::Tensor, Inner, at::Tensor>& nested) {
    return std::get<1>(nested).first;
  }
};

TEST_P(DataParallelArgumentsTest, NestedArgumentsAreSplitInPlace) {
  auto parallel = parallel_of(std::make_shared<SecondOfSecond>());
  const at::Tensor x = data({20, 3}, 1);
  const auto nested = std::make_tuple(x.cos(), std::make_pair(x.sin(), x), x.sin());
  EXPECT_THAT(parallel.forward(nested), BitwiseEqual(x.sin()));
}

struct OfThree : torch::nn::Cloneable<OfThree> {
  void reset() override { float1 = register_parameter("float1", at::ones({1}, at::kDouble)); }
  at::Tensor forward(const at::Tensor& v1, const at::Tensor& v2, const at::Tensor& v3 = {}) {
    return v3.defined() ? float1 * (v1 * v2 + v3) : float1 * (v1 * v2);
  }
  at::Tensor float1;
};

TEST_P(DataParallelArgumentsTest, SeveralTensorsGiveTheGradientsOfOneDevice) {
  auto parallel = parallel_of(std::make_shared<OfThree>());
  const at::Tensor a = data({5, 5}, 1).requires_grad_();
  const at::Tensor b = data({5, 5}, 2).requires_grad_();
  const at::Tensor c = data({5, 5}, 3).requires_grad_();
  const auto gradients = [&](const at::Tensor& output) {
    output.pow(2).sum().backward();
    std::vector<at::Tensor> all{parallel->float1.grad(), a.grad(), b.grad(), c.grad()};
    for (const at::Tensor& leaf : {parallel->float1, a, b, c}) {
      leaf.mutable_grad() = at::Tensor();
    }
    return all;
  };
  expect_close(gradients(parallel.forward(a, b, c)), gradients(parallel->forward(a, b, c)));
  const auto two = gradients(parallel.forward(a, b));
  EXPECT_FALSE(two[3].defined());
  expect_close({two[0], two[1], two[2]}, [&] {
    auto expected = gradients(parallel->forward(a, b));
    expected.pop_back();
    return expected;
  }());
  EXPECT_THAT(parallel.forward(a, b, at::Tensor()).detach(), AllClose((a * b).detach()));
}

struct Weighted : torch::nn::Cloneable<Weighted> {
  void reset() override { weight = register_parameter("weight", at::ones({2}, at::kDouble)); }
  // x [N, 2], state [3, N], table [2]
  at::Tensor forward(const at::Tensor& x, const at::Tensor& state, const at::Tensor& table) {
    return x * weight * table + state.sum(0).unsqueeze(1);
  }
  at::Tensor weight;
};

TEST_P(DataParallelArgumentsTest, AnArgumentMayBeSplitElsewhereOrPassedWhole) {
  auto parallel = parallel_of(std::make_shared<Weighted>());
  const at::Tensor x = data({5, 2}, 1).requires_grad_();
  const at::Tensor state = data({3, 5}, 2).requires_grad_();
  const at::Tensor table = data({2}, 3).requires_grad_();
  const auto gradients = [&](const at::Tensor& output) {
    output.pow(2).sum().backward();
    std::vector<at::Tensor> all{parallel->weight.grad(), x.grad(), state.grad(), table.grad()};
    for (const at::Tensor& leaf : {parallel->weight, x, state, table}) {
      leaf.mutable_grad() = at::Tensor();
    }
    return all;
  };
  const auto forward = [&] {
    return parallel.forward(x, split_along(state, -1), to_all_replicas(table));
  };
  EXPECT_THAT(forward().detach(), AllClose(parallel->forward(x, state, table).detach()));
  expect_close(gradients(forward()), gradients(parallel->forward(x, state, table)));
}

TEST_P(DataParallelArgumentsTest, AWholeArgumentMayBeWrittenTo) {
  struct Writer : torch::nn::Cloneable<Writer> {
    void reset() override {}
    at::Tensor forward(const at::Tensor& x, at::Tensor table) { return x * table.mul_(2); }
  };
  auto parallel = parallel_of(std::make_shared<Writer>());
  const at::Tensor table = at::ones({2}, at::kDouble).to(first());
  const at::Tensor x = data({6, 2}, 1);
  EXPECT_THAT(parallel.forward(x, to_all_replicas(table)), BitwiseEqual(x * 2));
  if (num_devices() > 1) {
    EXPECT_THAT(table, BitwiseEqual(at::ones_like(table)));
  }
}

struct TakesSample : torch::nn::Cloneable<TakesSample> {
  void reset() override { weight = register_parameter("weight", at::ones({2}, at::kDouble)); }
  Sample forward(const Sample& s) {
    Sample result;
    result.image = s.image * weight * s.table;
    if (s.state.has_value()) {
      result.state = *s.state * 2;
    }
    result.table = s.table;
    result.epoch = s.epoch;
    return result;
  }
  at::Tensor weight;
};

TEST_P(DataParallelArgumentsTest, AStructSaysWhereItsTensorsAre) {
  auto parallel = parallel_of(std::make_shared<TakesSample>());
  Sample sample{data({5, 2}, 1), data({3, 5}, 2), data({2}, 3), 4};
  const Sample result = parallel.forward(sample);
  EXPECT_THAT(result.image.detach(), AllClose(sample.image * sample.table));
  EXPECT_THAT(*result.state, BitwiseEqual(*sample.state * 2));
  EXPECT_THAT(result.table, BitwiseEqual(sample.table));
  EXPECT_EQ(result.epoch, 4);
  result.image.sum().backward();
  EXPECT_THAT(parallel->weight.grad(), AllClose((sample.image * sample.table).sum(0)));
  sample.state.reset();
  EXPECT_FALSE(parallel.forward(sample).state.has_value());
}

TEST_P(DataParallelArgumentsTest, AStructThatIsPassedWholeIsNotSplitAnywhere) {
  struct Sizes : torch::nn::Cloneable<Sizes> {
    void reset() override {}
    at::Tensor forward(const at::Tensor& x, const Sample& s) {
      TORCH_CHECK(s.image.size(0) == 5 && s.state->size(1) == 5 && s.table.size(0) == 2);
      return x;
    }
  };
  auto parallel = parallel_of(std::make_shared<Sizes>());
  const Sample sample{data({5, 2}, 1), data({3, 5}, 2), data({2}, 3), 4};
  const at::Tensor x = data({8, 2}, 4);
  EXPECT_THAT(parallel.forward(x, to_all_replicas(sample)), BitwiseEqual(x));
}

TEST_P(DataParallelArgumentsTest, WithNothingToSplitTheModuleRunsOnce) {
  struct CountsCalls : torch::nn::Cloneable<CountsCalls> {
    void reset() override {}
    at::Tensor forward(const at::Tensor& x, int factor) {
      ++*calls;
      return x * factor;
    }
    std::shared_ptr<std::atomic<int>> calls = std::make_shared<std::atomic<int>>(0);
  };
  auto parallel = parallel_of(std::make_shared<CountsCalls>());
  const at::Tensor x = data({6, 2}, 1);
  EXPECT_THAT(parallel.forward(to_all_replicas(x), 3), BitwiseEqual(x * 3));
  EXPECT_EQ(*parallel->calls, 1);
}

TEST_P(DataParallelArgumentsTest, ErrorsNameTheTensorInItsArgument) {
  auto parallel = parallel_of(std::make_shared<SecondOfSecond>());
  const at::Tensor x = data({4, 3}, 1);
  EXPECT_THAT(
      [&] {
        parallel.forward(std::make_tuple(x, std::make_pair(x, data({3, 3}, 2)), x));
      },
      ThrowsError(
          "[DataParallel] tensor 2 of input 0 has size 3 along dim 0, but tensor 0 of input "
          "0 has 4"));
}

// --- the function ----------------------------------------------------------------------------

TEST_P(DataParallelArgumentsTest, TheFunctionTakesATupleOfAllArguments) {
  auto module = std::make_shared<Weighted>();
  module->reset();
  module->to(first());
  const at::Tensor x = data({5, 2}, 1);
  const at::Tensor state = data({3, 5}, 2);
  const at::Tensor table = data({2}, 3);
  const at::Tensor output =
      data_parallel(module, std::make_tuple(x, split_along(state, 1), to_all_replicas(table)),
                    devices(), options());
  EXPECT_THAT(output.detach(), AllClose(module->forward(x, state, table).detach()));
  const auto pairs = std::make_shared<OfThree>();
  pairs->reset();
  pairs->to(first());
  EXPECT_THAT(data_parallel(pairs, std::make_tuple(x, x), devices()).detach(), AllClose(x * x));
}

}  // namespace
}  // namespace lockstep::parallel
