// SPDX-License-Identifier: Apache-2.0
// How DataParallel splits inputs and joins outputs.
#include "parallel/data_parallel_of_fixture.h"

namespace lockstep::parallel {
namespace {

using lockstep::testing::AllClose;
using lockstep::testing::BitwiseEqual;
using lockstep::testing::ThrowsError;

class DataParallelSplitTest : public DataParallelTest {};
LOCKSTEP_INSTANTIATE_DATA_PARALLEL(DataParallelSplitTest);

// out = x, with the rows of the chunk it came in as a further column; a module of any dim.
struct RowsSeen : torch::nn::Cloneable<RowsSeen> {
  explicit RowsSeen(int64_t dim) : dim(dim) {}
  void reset() override {}
  at::Tensor forward(const at::Tensor& x) { return at::full_like(x, x.size(dim)); }
  int64_t dim;
};

// What chunk sizes give in every place of `x`.
at::Tensor expected_rows(const at::Tensor& x, const std::vector<int64_t>& sizes, int64_t dim) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& chunk : x.split_with_sizes(sizes, dim)) {
    parts.push_back(at::full_like(chunk, chunk.size(dim)));
  }
  return at::cat(parts, dim);
}

TEST_P(DataParallelSplitTest, ChunksAreEvenAndLargerOnesComeFirst) {
  DataParallel parallel(std::make_shared<RowsSeen>(0), devices(), options());
  for (int64_t rows = 1; rows <= 12; ++rows) {
    const at::Tensor x = data({rows, 2}, 1);
    const auto chunks = sizes(rows);
    EXPECT_EQ(chunks.size(), std::min<size_t>(rows, num_devices()));
    EXPECT_LE(chunks.front() - chunks.back(), 1);
    EXPECT_THAT(parallel.forward(x), BitwiseEqual(expected_rows(x, chunks, 0)));
  }
}

TEST_P(DataParallelSplitTest, AnyBatchFromNoneToTwelveIsServed) {
  Mlp net(2, 3, 2);
  net->to(first());
  DataParallel parallel(net, devices(), options());
  for (int64_t rows = 0; rows <= 12; ++rows) {
    const at::Tensor x = data({rows, 2}, 1);
    const at::Tensor output = parallel.forward(x);
    EXPECT_EQ(output.sizes(), (std::vector<int64_t>{rows, 2}));
    EXPECT_THAT(output.detach(), AllClose(net->forward(x).detach(), {1e-12, 1e-14}));
    output.sum().backward();
    EXPECT_THAT(net->b->bias.grad(),
                BitwiseEqual(at::full({2}, static_cast<double>(rows), x.options())));
    net->zero_grad();
  }
}

TEST_P(DataParallelSplitTest, OtherDimensionsCanBeSplit) {
  const at::Tensor x = data({1, 7}, 1);
  for (const int64_t dim : {1, -1}) {
    DataParallelOptions with_dim = options();
    with_dim.dim = dim;
    DataParallel parallel(std::make_shared<RowsSeen>(1), devices(), with_dim);
    EXPECT_THAT(parallel.forward(x), BitwiseEqual(expected_rows(x, sizes(7), 1)));
  }
}

TEST_P(DataParallelSplitTest, GradientsOfOtherDimensionsComeBackInPlace) {
  const auto module =
      make_function_module(1, [](const at::Tensor& w, const at::Tensor& x) { return x * w * x; });
  module->to(first());
  DataParallelOptions with_dim = options();
  with_dim.dim = -2;
  DataParallel parallel(module, devices(), with_dim);
  const at::Tensor x = data({2, 5, 3}, 1).requires_grad_();
  const at::Tensor upstream = data({2, 5, 3}, 2);
  parallel.forward(x).backward(upstream);
  EXPECT_THAT(x.grad(), AllClose((2 * x * upstream).detach(), {1e-12, 1e-14}));
  EXPECT_THAT(module->weight.grad(), AllClose((x * x * upstream).sum().view({1}).detach()));
}

TEST_P(DataParallelSplitTest, EveryInputIsSplit) {
  struct Three : torch::nn::Cloneable<Three> {
    Three() { Three::reset(); }
    void reset() override {
      weight = register_parameter("weight", at::full({1}, 3.0, at::kDouble));
    }
    at::Tensor forward(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
      return weight * (a * b + c);
    }
    at::Tensor weight;
  };
  const auto module = std::make_shared<Three>();
  module->to(first());
  DataParallel parallel(module, devices(), options());
  const at::Tensor a = data({5, 5}, 1).requires_grad_();
  const at::Tensor b = data({5, 5}, 2).requires_grad_();
  const at::Tensor c = data({5, 1}, 3);
  const at::Tensor output = parallel(a, b, c);
  EXPECT_THAT(output.detach(), AllClose(module->forward(a, b, c).detach(), {1e-12, 1e-14}));
  output.sum().backward();
  EXPECT_THAT(a.grad(), AllClose(3 * b.detach(), {1e-12, 1e-14}));
  EXPECT_THAT(b.grad(), AllClose(3 * a.detach(), {1e-12, 1e-14}));
  EXPECT_FALSE(c.grad().defined());
}

TEST_P(DataParallelSplitTest, AModuleWithoutInputsRunsOnceOnTheFirstDevice) {
  struct Eye : torch::nn::Cloneable<Eye> {
    Eye() { Eye::reset(); }
    void reset() override { t = register_parameter("t", at::eye(2, 3)); }
    at::Tensor forward() {
      ++*calls;
      return t + (1 - t);
    }
    at::Tensor t;
    std::shared_ptr<int> calls = std::make_shared<int>(0);
  };
  const auto module = std::make_shared<Eye>();
  module->to(first());
  DataParallel parallel(module, devices(), options());
  const at::Tensor output = parallel.forward();
  EXPECT_THAT(output.detach(), BitwiseEqual(at::ones({2, 3}, module->t.options()).detach()));
  EXPECT_EQ(output.device(), first());
  EXPECT_EQ(*module->calls, 1);
}

TEST_P(DataParallelSplitTest, ScalarOutputsGiveOneEntryPerReplica) {
  const auto module = make_function_module(
      2, [](const at::Tensor& w, const at::Tensor& x) { return (x * w).sum(); });
  module->to(first());
  DataParallel parallel(module, devices(), options());
  const at::Tensor x = data({5, 2}, 1).requires_grad_();
  const at::Tensor output = parallel.forward(x);
  if (num_devices() == 1) {
    EXPECT_EQ(output.dim(), 0);
    return;
  }
  std::vector<at::Tensor> expected;
  for (const at::Tensor& chunk : x.split_with_sizes(sizes(5))) {
    expected.push_back(chunk.sum().detach());
  }
  EXPECT_THAT(output.detach(), AllClose(at::stack(expected), {1e-12, 1e-14}));
  // A weight per entry, to see that each replica gets its own.
  const at::Tensor weights = at::arange(1, output.size(0) + 1, x.options());
  (output * weights).sum().backward();
  std::vector<at::Tensor> rows;
  for (size_t r = 0; r < sizes(5).size(); ++r) {
    rows.push_back(at::full({sizes(5)[r], 2}, static_cast<double>(r + 1), x.options()));
  }
  EXPECT_THAT(x.grad(), BitwiseEqual(at::cat(rows)));
}

TEST_P(DataParallelSplitTest, AScalarOfOneChunkIsAVectorOfOne) {
  const auto module = make_function_module(
      2, [](const at::Tensor& w, const at::Tensor& x) { return (x * w).sum(); });
  module->to(first());
  DataParallel parallel(module, devices(), options());
  EXPECT_EQ(parallel.forward(data({1, 2}, 1)).dim(), num_devices() == 1 ? 0 : 1);
}

TEST_P(DataParallelSplitTest, AModuleMayWriteToItsInputWithoutReachingTheBatch) {
  const auto module = make_function_module(
      2, [](const at::Tensor& w, const at::Tensor& x) { return x.mul_(3) * w; });
  module->to(first());
  DataParallel parallel(module, devices(), options());
  // One device gets the batch itself, as the module would.
  for (int64_t rows = 1; rows <= 4 && num_devices() > 1; ++rows) {
    const at::Tensor x = at::ones({rows, 2}, at::kDouble).to(first());
    const at::Tensor leaf = x.clone().requires_grad_();
    EXPECT_THAT(parallel.forward(x).detach(), BitwiseEqual(x * 3));
    EXPECT_THAT(x, BitwiseEqual(at::ones_like(x))) << rows << " rows";
    parallel.forward(leaf).sum().backward();
    EXPECT_THAT(leaf.grad(), BitwiseEqual(x * 3));
  }
}

TEST_P(DataParallelSplitTest, TheOutputGoesWhereItIsAskedFor) {
  Mlp net(2, 3, 2);
  net->to(first());
  for (const c10::Device output_device : {devices().back(), c10::Device(c10::kCPU)}) {
    DataParallelOptions elsewhere = options();
    elsewhere.output_device = output_device;
    DataParallel parallel(net, devices(), elsewhere);
    for (const int64_t rows : {1, 6}) {
      const at::Tensor output = parallel.forward(data({rows, 2}, 1));
      EXPECT_EQ(output.device(), output_device);
      output.sum().backward();
    }
  }
  EXPECT_TRUE(net->a->weight.grad().defined());
}

TEST_P(DataParallelSplitTest, InputsOfAnyDtypeAreSplit) {
  const auto module = make_function_module(4, [](const at::Tensor& w, const at::Tensor& ids) {
    return w.index_select(0, ids.to(at::kLong).view(-1));
  });
  module->to(first());
  DataParallel parallel(module, devices(), options());
  for (const at::ScalarType dtype : {at::kLong, at::kInt, at::kByte, at::kBool}) {
    const at::Tensor ids = at::tensor({1, 0, 1, 1, 0}).to(first(), dtype);
    parallel.forward(ids).sum().backward();
    EXPECT_THAT(module->weight.grad().cpu(),
                BitwiseEqual(at::tensor({2.0, 3.0, 0.0, 0.0}, at::kDouble)));
    take_gradients(*module);
  }
}

// --- errors ----------------------------------------------------------------------------------

struct PairModule : torch::nn::Cloneable<PairModule> {
  void reset() override {}
  at::Tensor forward(const at::Tensor& a, const at::Tensor& b) { return a + b; }
};

TEST_P(DataParallelSplitTest, InputsThatCannotBeSplitAreErrorsThatNameThem) {
  DataParallel parallel(std::make_shared<PairModule>(), devices(), options());
  const at::Tensor x = data({4, 2}, 1);
  EXPECT_THAT([&] { parallel.forward(x[0][0], x); },
              ThrowsError("[DataParallel] input 0 has no dimension to be split along"));
  EXPECT_THAT(
      [&] {
        parallel.forward(x, data({3, 2}, 1));
      },
      ThrowsError("[DataParallel] input 1 has size 3 along dim 0, but input 0 has 4"));
  for (const int64_t dim : {2, -3}) {
    DataParallelOptions with_dim = options();
    with_dim.dim = dim;
    DataParallel wrong(std::make_shared<PairModule>(), devices(), with_dim);
    EXPECT_THAT([&] { wrong.forward(x, x); },
                ThrowsError("[DataParallel] expected dim from -2 to 1 for input 0 of shape [4, 2], "
                            "got " +
                            std::to_string(dim)));
  }
}

// Returns what `make` makes of each chunk.
class DataParallelJoinTest : public DataParallelOfTest {
 protected:
  using Make = std::function<at::Tensor(const at::Tensor& x)>;
  at::Tensor run(const Make& make, int64_t dim = 0) const {
    const auto module =
        make_function_module(1, [make](const at::Tensor&, const at::Tensor& x) { return make(x); });
    module->to(first());
    DataParallelOptions with_dim = options();
    with_dim.dim = dim;
    DataParallel parallel(module, devices(), with_dim);
    // The last chunk, and it alone, begins with 1.
    at::Tensor x = at::zeros({static_cast<int64_t>(num_devices()), 5}, at::kDouble).to(first());
    x[-1].fill_(1);
    return parallel.forward(x);
  }
  static bool is_last(const at::Tensor& x) { return x[0][0].item<double>() > 0; }
};
LOCKSTEP_INSTANTIATE_DATA_PARALLEL(DataParallelJoinTest);

TEST_P(DataParallelJoinTest, OutputsMustBeDefinedInAllReplicasOrInNone) {
  EXPECT_FALSE(run([](const at::Tensor&) { return at::Tensor(); }).defined());
  if (num_devices() == 1) {
    GTEST_SKIP() << "one output always fits";
  }
  EXPECT_THAT([&] { run([](const at::Tensor& x) { return is_last(x) ? at::Tensor() : x; }); },
              ThrowsError("[DataParallel] replica " + last() + " returned an undefined tensor"));
}

TEST_P(DataParallelJoinTest, OutputsMustFitAndTheErrorShowsBothShapes) {
  if (num_devices() == 1) {
    GTEST_SKIP() << "one output always fits";
  }
  EXPECT_THAT([&] { run([](const at::Tensor& x) { return is_last(x) ? x.narrow(1, 0, 3) : x; }); },
              ThrowsError("[DataParallel] cannot join the outputs along dim 0: replica " + last() +
                          " returned shape [1, 3] but replica 0 [1, 5]"));
  EXPECT_THAT([&] { run([](const at::Tensor& x) { return is_last(x) ? x[0] : x; }); },
              ThrowsError("replica " + last() + " returned shape [5] but replica 0 [1, 5]"));
  EXPECT_THAT(
      [&] { run([](const at::Tensor& x) { return is_last(x) ? x.to(at::kFloat) : x; }); },
      ThrowsError("[DataParallel] replica " + last() + " returned float but replica 0 double"));
}

TEST_P(DataParallelJoinTest, OutputsMustHaveTheDimension) {
  if (num_devices() == 1) {
    GTEST_SKIP() << "one output needs no joining";
  }
  at::Tensor x = data({5, 2, 4}, 1);
  const auto module = make_function_module(
      1, [](const at::Tensor&, const at::Tensor& x) { return x.select(2, 0).select(0, 0); });
  module->to(first());
  DataParallelOptions with_dim = options();
  with_dim.dim = 1;
  DataParallel parallel(module, devices(), with_dim);
  EXPECT_THAT([&] { parallel.forward(x); },
              ThrowsError("[DataParallel] cannot join the outputs along dim 1: replica 0 returned "
                          "shape [1], whose dims are -1 to 0"));
}

TEST_P(DataParallelJoinTest, OutputsMayDifferAlongTheDimension) {
  const at::Tensor output = run([](const at::Tensor& x) {
    return is_last(x) ? x.repeat({3, 1}) : x;
  });
  EXPECT_EQ(output.size(0), static_cast<int64_t>(num_devices()) + 2);
}

}  // namespace
}  // namespace lockstep::parallel
