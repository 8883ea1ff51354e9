// SPDX-License-Identifier: Apache-2.0
// DataParallel of LibTorch's own layers.
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/rnn.h>
#include <torch/optim/sgd.h>

#include <cmath>

#include "parallel/data_parallel_fixture.h"

namespace lockstep::parallel {
namespace {

using lockstep::testing::AllClose;
using lockstep::testing::BitwiseEqual;

class DataParallelLayersTest : public DataParallelTest {};
LOCKSTEP_INSTANTIATE_DATA_PARALLEL(DataParallelLayersTest);

template <class Module>
void copy_values(const Module& from, const Module& to) {
  const at::NoGradGuard no_grad;
  const auto sources = from.parameters();
  const auto targets = to.parameters();
  for (size_t i = 0; i < sources.size(); ++i) {
    at::Tensor(targets[i]).copy_(sources[i]);
  }
}

// --- convolutions ----------------------------------------------------------------------------

struct ConvNetImpl : torch::nn::Cloneable<ConvNetImpl> {
  ConvNetImpl() { ConvNetImpl::reset(); }
  void reset() override {
    conv = register_module("conv", torch::nn::Conv2d(2, 2, 2));
    linear = register_module("linear", torch::nn::Linear(8, 2));
  }
  at::Tensor forward(const at::Tensor& x) {
    return at::log_softmax(linear(at::relu(conv(x)).view({-1, 8})), 1);
  }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(ConvNet);

// 3x3 images with kernel 2 leave 2 channels of 2x2: 8 features.
TEST_P(DataParallelLayersTest, ASmallConvNetTrainsAsOnOneDevice) {
  ConvNet one;
  ConvNet many;
  fill(*one, 1);
  copy_values(*one, *many);
  one->to(first());
  many->to(first());
  DataParallel parallel(many, devices(), options());
  at::Tensor input = at::ones({16, 2, 3, 3}).to(first());
  for (int step = 0; step < 3; ++step) {
    input = input + step;
    const auto train = [&](ConvNetImpl& net, const at::Tensor& output) {
      torch::optim::SGD optimizer(net.parameters(), 0.1);
      optimizer.zero_grad();
      at::mse_loss(output, at::zeros({16, 2}).to(first())).backward();
      optimizer.step();
    };
    train(*one, one->forward(input));
    train(*many, parallel.forward(input));
    expect_close(many->parameters(), one->parameters(), {1e-4, 1e-6});
  }
}

struct FourConvsImpl : torch::nn::Cloneable<FourConvsImpl> {
  FourConvsImpl() { FourConvsImpl::reset(); }
  void reset() override {
    const std::vector<int64_t> channels = {8, 16, 32, 16, 8};
    convs.clear();
    for (size_t i = 0; i < 4; ++i) {
      convs.push_back(register_module(
          "conv" + std::to_string(i),
          torch::nn::Conv2d(
              torch::nn::Conv2dOptions(channels[i], channels[i + 1], 2).bias(false))));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& conv : convs) {
      x = conv(x.to(conv->weight.scalar_type()));
    }
    return x;
  }
  std::vector<torch::nn::Conv2d> convs;
};
TORCH_MODULE(FourConvs);

TEST_P(DataParallelLayersTest, GradientsKeepDtypeAndMemoryFormatOfTheParameters) {
  struct Case {
    int num_channels_last;
    int num_half;  // of the last layers
  };
  for (const Case& c : {Case{0, 0}, Case{2, 0}, Case{4, 0}, Case{0, 2}, Case{2, 2}, Case{4, 4}}) {
    FourConvs net;
    fill(*net, 3);
    for (int i = 0; i < 4; ++i) {
      if (i >= 4 - c.num_half) {
        net->convs[i]->to(at::kHalf);
      }
      if (i < c.num_channels_last) {
        at::Tensor& weight = net->convs[i]->weight;
        weight.set_data(weight.data().contiguous(at::MemoryFormat::ChannelsLast));
      }
    }
    net->to(first());
    const double tolerance = c.num_half > 0 ? 3e-3 : 1e-5;
    DataParallel parallel(net, devices(), options());
    const at::Tensor x =
        (data({8 * static_cast<int64_t>(num_devices()), 8, 8, 8}, 4) / 64).to(at::kFloat);
    for (int step = 0; step < 2; ++step) {
      parallel.forward(x).to(at::kFloat).pow(2).mean().backward();
      const auto gradients = take_gradients(*net);
      net->forward(x).to(at::kFloat).pow(2).mean().backward();
      const auto expected = take_gradients(*net);
      for (size_t i = 0; i < 4; ++i) {
        const at::Tensor& weight = net->convs[i]->weight;
        EXPECT_EQ(gradients[i].scalar_type(), weight.scalar_type());
        EXPECT_EQ(gradients[i].strides(), weight.strides());
        const double scale = expected[i].abs().max().to(at::kDouble).item<double>();
        EXPECT_THAT(gradients[i], AllClose(expected[i], {tolerance, tolerance * scale}));
      }
    }
  }
}

TEST_P(DataParallelLayersTest, ChannelsLastInputsStaySo) {
  const auto module = make_function_module(1, [](const at::Tensor& w, const at::Tensor& x) {
    EXPECT_TRUE(x.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_FALSE(x.is_contiguous());
    return x * w;
  });
  module->to(first());
  DataParallel parallel(module, devices(), options());
  const at::Tensor x = data({10, 3, 4, 4}, 1).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor output = parallel.forward(x);
  EXPECT_TRUE(output.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_THAT(output.detach(), BitwiseEqual(x));
}

// --- layers with state -----------------------------------------------------------------------

TEST_P(DataParallelLayersTest, BatchNormStatisticsAreThoseOfTheFirstChunk) {
  torch::nn::BatchNorm1d norm(3);
  torch::nn::BatchNorm1d serial(3);
  norm->to(first(), at::kDouble);
  serial->to(first(), at::kDouble);
  DataParallel parallel(norm, devices(), options());
  for (int step = 1; step <= 3; ++step) {
    const at::Tensor x = data({9, 3}, step);
    const at::Tensor chunk = x.narrow(0, 0, sizes(9)[0]);
    parallel.forward(x).pow(2).sum().backward();
    serial->forward(chunk);
    EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), step);
    EXPECT_THAT(norm->running_mean, BitwiseEqual(serial->running_mean));
    EXPECT_THAT(norm->running_var, BitwiseEqual(serial->running_var));
  }
  norm->eval();
  const at::Tensor x = data({9, 3}, 10);
  EXPECT_THAT(parallel.forward(x).detach(), AllClose(norm->forward(x).detach(), {1e-12, 1e-14}));
}

TEST_P(DataParallelLayersTest, TwoBatchNormForwardsMayComeBeforeBackward) {
  torch::nn::BatchNorm1d norm(3);
  norm->to(first(), at::kDouble);
  DataParallel parallel(norm, devices(), options());
  const at::Tensor real = parallel.forward(data({8, 3}, 1));
  const at::Tensor fake = parallel.forward(data({8, 3}, 2));
  (real.pow(2).sum() - fake.pow(3).sum()).backward();
  EXPECT_TRUE(norm->weight.grad().defined());
}

TEST_P(DataParallelLayersTest, DropoutMasksDifferBetweenReplicasButKeepTheRate) {
  torch::nn::Dropout dropout(0.5);
  DataParallel parallel(dropout, devices(), options());
  at::manual_seed(1);
  // CPU replicas share one generator. Devices have one each, which this would start alike.
  for (size_t r = 0; r < num_devices() && !first().is_cpu(); ++r) {
    at::Generator generator = at::globalContext().defaultGenerator(devices()[r]);
    generator.set_current_seed(r);
  }
  const int64_t rows = 64 * static_cast<int64_t>(num_devices());
  const at::Tensor output = parallel.forward(at::ones({rows, 8}).to(first()));
  EXPECT_TRUE(((output == 0) | (output == 2)).all().item<bool>());
  EXPECT_NEAR(output.mean().item<double>(), 1.0, 0.25);
  const auto chunks = output.chunk(static_cast<int64_t>(num_devices()));
  for (size_t r = 1; r < chunks.size(); ++r) {
    EXPECT_FALSE(at::equal(chunks[0], chunks[r]));
  }
  dropout->eval();
  EXPECT_TRUE((parallel.forward(at::ones({rows, 8}).to(first())) == 1).all().item<bool>());
}

// --- recurrent layers ------------------------------------------------------------------------

struct RecurrentImpl : torch::nn::Cloneable<RecurrentImpl> {
  RecurrentImpl(int64_t in, int64_t hidden, bool bidirectional)
      : in(in), hidden(hidden), bidirectional(bidirectional) {
    RecurrentImpl::reset();
  }
  void reset() override {
    lstm = register_module(
        "lstm",
        torch::nn::LSTM(
            torch::nn::LSTMOptions(in, hidden).batch_first(true).bidirectional(bidirectional)));
  }
  at::Tensor forward(const at::Tensor& x) { return std::get<0>(lstm->forward(x)); }
  int64_t in, hidden;
  bool bidirectional;
  torch::nn::LSTM lstm{nullptr};
};
TORCH_MODULE(Recurrent);

TEST_P(DataParallelLayersTest, ALargeLstmTrainsAsOnOneDevice) {
  Recurrent one(300, 256, true);
  Recurrent many(300, 256, true);
  copy_values(*one, *many);
  one->to(first());
  many->to(first());
  DataParallel parallel(many, devices(), options());
  const at::Tensor x = at::ones({4, 4, 300}).to(first());
  {
    const at::NoGradGuard no_grad;
    parallel.forward(x);
  }
  const auto train = [&](RecurrentImpl& net, const at::Tensor& output) {
    torch::optim::SGD optimizer(net.parameters(), 10);
    at::mse_loss(output, at::zeros_like(output)).backward();
    optimizer.step();
  };
  train(*one, one->forward(x));
  train(*many, parallel.forward(x));
  expect_close(many->parameters(), one->parameters(), {1e-4, 1e-5});
}

TEST_P(DataParallelLayersTest, LstmGradientsAreTheSumOverEqualChunks) {
  Recurrent net(2, 3, false);
  net->to(first(), at::kDouble);
  DataParallel parallel(net, devices(), options());
  const auto rows = static_cast<int64_t>(num_devices());
  const at::Tensor x = at::ones({rows, 4, 2}, at::kDouble).to(first());
  for (int step = 0; step < 2; ++step) {
    parallel.forward(x).sum().backward();
    const auto gradients = take_gradients(*net);
    net->forward(x.narrow(0, 0, 1)).sum().backward();
    auto expected = take_gradients(*net);
    for (at::Tensor& gradient : expected) {
      gradient = gradient * rows;
    }
    expect_close(gradients, expected);
  }
}

// --- sparse gradients ------------------------------------------------------------------------

TEST_P(DataParallelLayersTest, SparseEmbeddingGradientsStaySparse) {
  torch::nn::Embedding table(torch::nn::EmbeddingOptions(10, 3).sparse(true));
  table->to(first());
  DataParallel parallel(table, devices(), options());
  for (int step = 0; step < 2; ++step) {
    parallel.forward(at::tensor({1, 2, 2, 3}).to(first())).sum().backward();
    const at::Tensor gradient = take_gradients(*table)[0];
    EXPECT_TRUE(gradient.is_sparse());
    at::Tensor expected = at::zeros({10, 3});
    expected[1].fill_(1);
    expected[2].fill_(2);
    expected[3].fill_(1);
    EXPECT_THAT(gradient.to_dense().cpu(), BitwiseEqual(expected));
  }
}

// --- autocast --------------------------------------------------------------------------------

// Looks up rows of its weight where the chunk begins with `sparse_value`; multiplies otherwise.
struct LooksUpOrMultiplies : torch::nn::Cloneable<LooksUpOrMultiplies> {
  explicit LooksUpOrMultiplies(double sparse_value) : sparse_value(sparse_value) {
    LooksUpOrMultiplies::reset();
  }
  void reset() override { weight = register_parameter("weight", at::ones({3, 2}, at::kDouble)); }
  at::Tensor forward(const at::Tensor& x) {
    return x[0][0].item<double>() == sparse_value
               ? at::embedding(weight, x.select(1, 0).to(at::kLong), -1, false, /*sparse=*/true)
               : at::matmul(x, weight);
  }

  double sparse_value;
  at::Tensor weight;
};

TEST_P(DataParallelLayersTest, AReplicaMayGiveASparseGradientAndAnotherADenseOne) {
  for (const bool sparse_first : {true, false}) {
    const auto module = std::make_shared<LooksUpOrMultiplies>(sparse_first ? 0 : 1);
    module->to(first());
    DataParallel parallel(module, devices(), options());
    const auto half = at::TensorOptions(at::kDouble).device(first());
    const at::Tensor x = at::cat({at::zeros({2, 3}, half), at::ones({2, 3}, half)});
    parallel.forward(x).sum().backward();
    auto gradient = take_gradients(*module)[0];
    for (const at::Tensor& chunk : at::split_with_sizes(x, sizes(4))) {
      module->forward(chunk).sum().backward();
    }
    auto expected = take_gradients(*module)[0];
    gradient = gradient.is_sparse() ? gradient.to_dense() : gradient;
    expected = expected.is_sparse() ? expected.to_dense() : expected;
    EXPECT_THAT(gradient, BitwiseEqual(expected)) << "sparse first: " << sparse_first;
  }
}

TEST_P(DataParallelLayersTest, AnEmbeddingThatShortensItsRowsHasAWeightPerReplica) {
  for (const bool shortens : {false, true}) {
    torch::nn::EmbeddingOptions embedding(4, 3);
    if (shortens) {
      embedding.max_norm(1.0);
    }
    torch::nn::Embedding net(embedding);
    {
      const at::NoGradGuard no_grad;
      net->weight.fill_(1);
    }
    net->to(first());
    DataParallel parallel(net, devices(), options());
    const at::Tensor rows = at::zeros({6}, at::TensorOptions(at::kLong).device(first()));
    const at::Tensor expected = shortens ? at::full({6, 3}, std::sqrt(1.0 / 3)) : at::ones({6, 3});
    EXPECT_THAT(parallel.forward(rows).detach().cpu(), AllClose(expected, {1e-5, 1e-5}));
    EXPECT_THAT(net->weight[0].detach().cpu(), AllClose(expected[0], {1e-5, 1e-5}));
    const auto replicas = parallel.replicas();
    for (size_t r = 1; r < num_devices(); ++r) {
      const bool shares = replicas[r]->weight.storage().is_alias_of(net->weight.storage());
      EXPECT_EQ(shares, !shortens && devices()[r] == first()) << "replica " << r;
    }
  }
}

TEST_P(DataParallelLayersTest, AutocastReachesEveryReplica) {
  torch::nn::Linear linear(3, 2);
  linear->to(first());
  DataParallel parallel(linear, devices(), options());
  const at::Tensor x = at::ones({8, 3}).to(first());
  at::autocast::set_autocast_enabled(first().type(), true);
  const at::Tensor output = parallel.forward(x);
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(first().type(), false);
  EXPECT_EQ(output.scalar_type(), at::autocast::get_autocast_dtype(first().type()));
  output.sum().backward();
  EXPECT_THAT(linear->bias.grad().cpu(), BitwiseEqual(at::full({2}, 8.0f)));
}

}  // namespace
}  // namespace lockstep::parallel
