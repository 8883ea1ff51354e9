// SPDX-License-Identifier: Apache-2.0
// Forwards of any signature: what comes back.
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/rnn.h>
#include <torch/ordered_dict.h>

#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <variant>

#include "parallel/data_parallel_of_fixture.h"

namespace lockstep::parallel {
namespace {

using lockstep::testing::AllClose;
using lockstep::testing::BitwiseEqual;
using lockstep::testing::ThrowsError;

class DataParallelResultsTest : public DataParallelOfTest {};
LOCKSTEP_INSTANTIATE_DATA_PARALLEL(DataParallelResultsTest);

struct Nested : torch::nn::Cloneable<Nested> {
  using Map = std::map<std::string, std::variant<at::Tensor, std::vector<at::Tensor>>>;
  using Result =
      std::tuple<std::vector<at::Tensor>,
                 std::tuple<at::Tensor, at::Tensor, std::vector<at::Tensor>>, at::Tensor, Map>;
  void reset() override { weight = register_parameter("weight", at::ones({2}, at::kDouble)); }
  Result forward(const at::Tensor& given) {
    const at::Tensor x = given * weight;
    return {{x}, {x.sin(), x.cos(), {x + 1}}, x, {{"a", x}, {"b", std::vector{x.sin()}}}};
  }
  at::Tensor weight;
};

TEST_P(DataParallelResultsTest, NestedResultsComeBackInTheSameStructure) {
  auto parallel = parallel_of(std::make_shared<Nested>());
  const at::Tensor x = data({2, 2}, 1);
  const auto [list, tuple, tensor, map] = parallel.forward(x);
  const auto expect = [](const at::Tensor& actual, const at::Tensor& expected) {
    EXPECT_THAT(actual.detach(), BitwiseEqual(expected));
  };
  ASSERT_EQ(list.size(), 1U);
  expect(list[0], x);
  expect(std::get<0>(tuple), x.sin());
  expect(std::get<1>(tuple), x.cos());
  expect(std::get<2>(tuple).at(0), x + 1);
  expect(tensor, x);
  expect(std::get<at::Tensor>(map.at("a")), x);
  expect(std::get<std::vector<at::Tensor>>(map.at("b")).at(0), x.sin());
}

struct Heads : torch::nn::Cloneable<Heads> {
  void reset() override {
    body = register_module("body", torch::nn::Linear(3, 4));
    left = register_module("left", torch::nn::Linear(4, 2));
    right = register_module("right", torch::nn::Linear(4, 5));
    to(at::kDouble);
  }
  std::tuple<at::Tensor, at::Tensor, at::Tensor> forward(const at::Tensor& x) {
    const at::Tensor hidden = at::tanh(body(x));
    const at::Tensor scores = right(hidden);
    return {left(hidden), scores, scores.argmax(1)};
  }
  torch::nn::Linear body{nullptr}, left{nullptr}, right{nullptr};
};

class DataParallelHeadsTest : public DataParallelResultsTest {
 protected:
  std::shared_ptr<Heads> make() const {
    auto net = std::make_shared<Heads>();
    net->reset();
    fill(*net, 7);
    net->to(first());
    return net;
  }
  // The gradients of what `loss` makes of the outputs, with the replicas and without.
  void expect_gradients_of(
      const std::function<at::Tensor(const at::Tensor& left, const at::Tensor& right)>& loss) {
    const auto net = make();
    DataParallel parallel(net, devices(), options());
    const at::Tensor x = data({7, 3}, 1).requires_grad_();
    const auto [left, right, ids] = parallel.forward(x);
    EXPECT_FALSE(ids.requires_grad());
    EXPECT_THAT(ids, BitwiseEqual(right.detach().argmax(1)));
    loss(left, right).backward();
    auto gradients = take_gradients(*net);
    gradients.push_back(x.grad());
    x.mutable_grad() = at::Tensor();
    const auto [one_left, one_right, one_ids] = net->forward(x);
    loss(one_left, one_right).backward();
    auto expected = take_gradients(*net);
    expected.push_back(x.grad());
    ASSERT_EQ(gradients.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(gradients[i].defined(), expected[i].defined()) << i;
      if (expected[i].defined()) {
        EXPECT_THAT(gradients[i], AllClose(expected[i], {1e-12, 1e-13})) << i;
      }
    }
  }
};
LOCKSTEP_INSTANTIATE_DATA_PARALLEL(DataParallelHeadsTest);

TEST_P(DataParallelHeadsTest, ALossMayUseAllOutputs) {
  expect_gradients_of([](const at::Tensor& left, const at::Tensor& right) {
    return left.pow(2).sum() + right.pow(3).sum();
  });
}

// pytorch#57081
TEST_P(DataParallelHeadsTest, ALossMayLeaveAnOutputOut) {
  expect_gradients_of([](const at::Tensor& left, const at::Tensor&) { return left.pow(2).sum(); });
  expect_gradients_of([](const at::Tensor&, const at::Tensor& right) { return right.sum(); });
}

TEST_P(DataParallelHeadsTest, PenaltiesOnInputsGoThroughEveryOutput) {
  const auto net = make();
  DataParallel parallel(net, devices(), options());
  const at::Tensor x = data({7, 3}, 1).requires_grad_();
  const auto gradients = [&](const auto& outputs) {
    const at::Tensor sum = std::get<0>(outputs).pow(2).sum() + std::get<1>(outputs).pow(2).sum();
    const at::Tensor slope = torch::autograd::grad({sum}, {x}, {}, true, true)[0];
    (sum + slope.pow(2).sum()).backward();
    auto all = take_gradients(*net);
    all.push_back(x.grad());
    x.mutable_grad() = at::Tensor();
    return all;
  };
  const auto actual = gradients(parallel.forward(x));
  expect_close(actual, gradients(net->forward(x)));
}

TEST_P(DataParallelHeadsTest, AGraphThatWasRecordedEndsWithItsNextBackward) {
  const auto net = make();
  DataParallel parallel(net, devices(), options());
  const at::Tensor x = data({7, 3}, 1).requires_grad_();
  const auto outputs = parallel.forward(x);
  const at::Tensor sum = std::get<0>(outputs).pow(2).sum() + std::get<1>(outputs).pow(2).sum();
  const at::Tensor slope = torch::autograd::grad({sum}, {x}, {}, true, true)[0];
  (sum + slope.pow(2).sum()).backward();
  EXPECT_THAT([&] { std::get<0>(outputs).sum().backward(); }, ThrowsError("second time"));
}

TEST_P(DataParallelHeadsTest, TwoBackwardsThroughTwoOutputsNeedARetainedGraph) {
  const auto net = make();
  DataParallel parallel(net, devices(), options());
  const auto [left, right, ids] = parallel.forward(data({7, 3}, 1));
  left.sum().backward({}, /*retain_graph=*/true);
  right.sum().backward();
  const auto gradients = take_gradients(*net);
  const auto [one_left, one_right, one_ids] = net->forward(data({7, 3}, 1));
  (one_left.sum() + one_right.sum()).backward();
  expect_close(gradients, take_gradients(*net));
  EXPECT_THAT([&] { right.sum().backward(); }, ThrowsError("second time"));
}

TEST_P(DataParallelResultsTest, AnLstmReturnsItsStateJoinedAlongItsBatch) {
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(3, 4).batch_first(true).num_layers(2));
  lstm->to(first(), at::kDouble);
  DataParallelOptions with_dims = options();
  with_dims.output_dims = {0, 1, 1};
  DataParallel parallel(lstm, devices(), with_dims);
  const at::Tensor x = data({5, 6, 3}, 1);
  const auto [output, state] = parallel.forward(x);
  const auto [one_output, one_state] = lstm->forward(x);
  EXPECT_THAT(output.detach(), AllClose(one_output.detach(), {1e-12, 1e-14}));
  EXPECT_THAT(std::get<0>(state).detach(), AllClose(std::get<0>(one_state).detach()));
  EXPECT_THAT(std::get<1>(state).detach(), AllClose(std::get<1>(one_state).detach()));
  // And on from there.
  const auto next = std::get<0>(parallel.forward(x, split_along(state, 1)));
  EXPECT_THAT(next.detach(),
              AllClose(std::get<0>(lstm->forward(x, one_state)).detach(), {1e-12, 1e-14}));
  with_dims.output_dims = {0, 1};
  DataParallel wrong(lstm, devices(), with_dims);
  EXPECT_THAT(
      [&] { wrong.forward(x); },
      ThrowsError("[DataParallel] DataParallelOptions::output_dims has 2 entries, but forward "
                  "returned 3 tensors"));
}

struct Containers : torch::nn::Cloneable<Containers> {
  using Dict = torch::OrderedDict<std::string, at::Tensor>;
  using Map = std::unordered_map<std::string, at::Tensor>;
  void reset() override {}
  std::tuple<Dict, Map, double, ToAllReplicas<at::Tensor>> forward(const at::Tensor& x) {
    Dict dict;
    dict.insert("b", x);
    dict.insert("a", x + 1);
    Map map;
    for (int i = 0; i < 20; ++i) {
      // In an order that differs among the replicas.
      const int key = x[0][0].item<double>() > 0 ? i : 19 - i;
      map[std::to_string(key)] = x * key;
    }
    return {dict, map, std::nan(""), to_all_replicas(x.narrow(1, 0, 1))};
  }
};

TEST_P(DataParallelResultsTest, DictsMapsAndWholeResultsComeBackAlongAnyDimension) {
  auto module = std::make_shared<Containers>();
  module->reset();
  DataParallelOptions along_one = options();
  along_one.dim = 1;
  DataParallel parallel(module, devices(), along_one);
  at::Tensor x = data({2, 7}, 1).abs() + 1;
  x.select(1, 0).fill_(-1);
  const auto [dict, map, nan, whole] = parallel.forward(x);
  EXPECT_EQ(dict.keys(), (std::vector<std::string>{"b", "a"}));
  EXPECT_THAT(dict["b"], BitwiseEqual(x));
  EXPECT_THAT(dict["a"], BitwiseEqual(x + 1));
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(map.at(std::to_string(i)), BitwiseEqual(x * i));
  }
  EXPECT_THAT(whole.value, BitwiseEqual(x.narrow(1, 0, 1)));
}

// --- results that cannot be joined -----------------------------------------------------------

// Returns `make(x, whether the replica has the last row)`.
template <class Result>
struct Makes : torch::nn::Cloneable<Makes<Result>> {
  using Make = std::function<Result(const at::Tensor& x, bool last)>;
  explicit Makes(Make make) : make(std::move(make)) {}
  void reset() override {}
  Result forward(const at::Tensor& x) { return make(x, x[-1][0].template item<double>() > 0); }
  Make make;
};

class DataParallelUnlikeResultsTest : public DataParallelResultsTest {
 protected:
  template <class Result>
  Result run(typename Makes<Result>::Make make) const {
    auto parallel = parallel_of(std::make_shared<Makes<Result>>(std::move(make)));
    at::Tensor x = at::zeros({static_cast<int64_t>(num_devices()), 2}, at::kDouble).to(first());
    x[-1].fill_(1);
    return parallel.forward(x);
  }
  void SetUp() override {
    if (num_devices() == 1) {
      GTEST_SKIP() << "one result is like itself";
    }
  }
  std::string message(const std::string& rest) const {
    return "[DataParallel] cannot join the results: that of replica " + last() + rest;
  }
};
LOCKSTEP_INSTANTIATE_DATA_PARALLEL(DataParallelUnlikeResultsTest);

TEST_P(DataParallelUnlikeResultsTest, MapsNeedTheSameKeys) {
  using Map = std::map<std::string, at::Tensor>;
  EXPECT_THAT(
      [&] {
        run<Map>([](const at::Tensor& x, bool last) {
          return last ? Map{{"a", x}, {"b", x}} : Map{{"a", x}};
        });
      },
      ThrowsError(message(" has 2 keys, but that of replica 0 1")));
  EXPECT_THAT(
      [&] {
        run<Map>([](const at::Tensor& x, bool last) {
          return last ? Map{{"b", x}} : Map{{"a", x}};
        });
      },
      ThrowsError(message(" has other keys than that of replica 0")));
}

TEST_P(DataParallelUnlikeResultsTest, ListsNeedTheSameLengthAndOptionalsTheSamePresence) {
  using Pair = std::pair<at::Tensor, std::vector<at::Tensor>>;
  EXPECT_THAT(
      [&] {
        run<Pair>([](const at::Tensor& x, bool last) {
          return Pair{x, {size_t{last ? 3U : 2U}, x}};
        });
      },
      ThrowsError(message("[1] has 3 elements, but that of replica 0 2")));
  using Maybe = std::optional<at::Tensor>;
  EXPECT_THAT(
      [&] { run<Maybe>([](const at::Tensor& x, bool last) { return last ? Maybe() : Maybe(x); }); },
      ThrowsError(message(" is empty, but that of replica 0 is not")));
  EXPECT_FALSE(run<Maybe>([](const at::Tensor&, bool) { return Maybe(); }).has_value());
}

TEST_P(DataParallelUnlikeResultsTest, OtherValuesMustBeTheSame) {
  using Pair = std::pair<at::Tensor, double>;
  EXPECT_THAT(
      [&] { run<Pair>([](const at::Tensor& x, bool last) {
              return Pair{x, last ? 2 : 1};
            }); },
      ThrowsError(message("[1] is no tensor, and not what replica 0 returned")));
  EXPECT_EQ(run<Pair>([](const at::Tensor& x, bool) { return Pair{x, 3}; }).second, 3);
}

TEST_P(DataParallelUnlikeResultsTest, ShapesAreComparedOutputByOutput) {
  using Pair = std::pair<at::Tensor, at::Tensor>;
  EXPECT_THAT(
      [&] {
        run<Pair>([](const at::Tensor& x, bool last) {
          return Pair{x, last ? x.narrow(1, 0, 1) : x};
        });
      },
      ThrowsError("[DataParallel] output 1: cannot join the outputs along dim 0: replica " +
                  last() + " returned shape [1, 1] but replica 0 [1, 2]"));
  EXPECT_THAT(
      [&] {
        run<Pair>([](const at::Tensor& x, bool last) { return Pair{last ? x : at::Tensor(), x}; });
      },
      ThrowsError("[DataParallel] output 0: replica 0 returned an undefined tensor"));
  EXPECT_FALSE(run<Pair>([](const at::Tensor& x, bool) {
                 return Pair{at::Tensor(), x};
               }).first.defined());
}

}  // namespace
}  // namespace lockstep::parallel
