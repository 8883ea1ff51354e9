// SPDX-License-Identifier: Apache-2.0
// LibTorch's own layers and containers as replicas: each trains as on one device.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformerlayer.h>

#include "replicate/replica_set.h"
#include "replicate/replicas_fixture.h"
#include "replicate/replicate.h"
#include "replicate/test_modules.h"
#include "testing/device_sets.h"
#include "testing/matchers.h"
#include "testing/random.h"

namespace lockstep::replicate {
namespace {

using lockstep::testing::AllClose;
using lockstep::testing::BitwiseEqual;
using lockstep::testing::random_tensor;
using lockstep::testing::Tolerance;

class ReplicateLayersTest : public ReplicasTest {
 protected:
  // Tensors this small cost a busy machine seconds when several threads wait for each other.
  ReplicateLayersTest() { at::set_num_threads(1); }
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS(ReplicateLayersTest);

TEST_P(ReplicateLayersTest, SequentialTrains) {
  torch::nn::Sequential net(torch::nn::Linear(3, 5), torch::nn::BatchNorm1d(5),
                            torch::nn::Linear(5, 2));
  net->to(first(), at::kDouble);
  expect_gradients_of_one_device<torch::nn::SequentialImpl>(
      net.ptr(), devices(), [](torch::nn::SequentialImpl& m, int64_t i) {
        return m.forward(beside(m, random_tensor({4, 3}, 10 + i))).pow(2).sum();
      });
}

TEST_P(ReplicateLayersTest, ModuleListTrains) {
  torch::nn::ModuleList list(torch::nn::Linear(3, 3), torch::nn::Linear(3, 3));
  list->to(first(), at::kDouble);
  expect_gradients_of_one_device<torch::nn::ModuleListImpl>(
      list.ptr(), devices(), [](torch::nn::ModuleListImpl& m, int64_t i) {
        at::Tensor x = beside(m, random_tensor({4, 3}, 20 + i));
        for (const auto& layer : m) {
          x = layer->as<torch::nn::Linear>()->forward(x).sin();
        }
        return x.sum();
      });
}

TEST_P(ReplicateLayersTest, LstmTrainsAlsoAfterReplicasAreRefreshed) {
  auto lstm = placed(torch::nn::LSTM(2, 3));
  const at::Tensor x = at::ones({4, 1, 2});
  const auto loss = [&](torch::nn::LSTMImpl& m) {
    return std::get<0>(m.forward(beside(m, x))).sum();
  };
  ReplicaSet<torch::nn::LSTMImpl> set(lstm, devices());
  for (int step = 0; step < 2; ++step) {
    loss(*lstm).backward();
    const auto alone = take_gradients(*lstm);
    set.synchronize();
    at::Tensor total = at::zeros({}, first());
    for (const auto& replica : set.replicas()) {
      total = total + loss(*replica).to(first());
    }
    total.backward();
    const auto gradients = take_gradients(*lstm);
    const at::NoGradGuard no_grad;
    for (size_t p = 0; p < alone.size(); ++p) {
      EXPECT_THAT(gradients[p], AllClose(alone[p] * static_cast<double>(k()), {1e-5, 1e-6}));
      lstm->parameters()[p].sub_(alone[p], 0.1);
    }
  }
}

TEST_P(ReplicateLayersTest, TransformerEncoderLayerTrains) {
  torch::nn::TransformerEncoderLayer layer(
      torch::nn::TransformerEncoderLayerOptions(4, 2).dim_feedforward(8).dropout(0));
  layer->to(first(), at::kDouble);
  expect_gradients_of_one_device<torch::nn::TransformerEncoderLayerImpl>(
      layer.ptr(), devices(), [](torch::nn::TransformerEncoderLayerImpl& m, int64_t i) {
        return m.forward(beside(m, random_tensor({3, 2, 4}, 30 + i))).pow(2).sum();
      });
}

TEST_P(ReplicateLayersTest, SparseGradientsOfAnEmbeddingAreSummedSparse) {
  const auto table = placed(torch::nn::Embedding(torch::nn::EmbeddingOptions(10, 5).sparse(true)));
  expect_gradients_of_one_device<torch::nn::EmbeddingImpl>(
      table.ptr(), devices(),
      [](torch::nn::EmbeddingImpl& m, int64_t i) {
        const at::Tensor ids = random_tensor({20, 5}, 40 + i, at::kLong).abs().remainder(10);
        return m.forward(beside(m, ids)).pow(2).sum();
      },
      {1e-5, 1e-6});
}

TEST_P(ReplicateLayersTest, RowsThatSeveralReplicasLookUpAreAddedUp) {
  const auto table = placed(torch::nn::Embedding(torch::nn::EmbeddingOptions(10, 3).sparse(true)));
  at::Tensor loss = at::zeros({}, first());
  at::Tensor expected = at::zeros({10, 3});
  int64_t id = 1;
  for (auto& replica : replicate(table, devices())) {
    const at::Tensor ids = beside(*replica, at::tensor({id, id + 1}, at::kLong));
    loss = loss + replica(ids).sum().to(first());
    expected[id] += 1;
    expected[id + 1] += 1;
    ++id;
  }
  loss.backward();
  EXPECT_TRUE(table->weight.grad().is_sparse());
  EXPECT_THAT(table->weight.grad().to_dense(), BitwiseEqual(expected));
}

struct ShiftImpl : torch::nn::Cloneable<ShiftImpl> {
  ShiftImpl() { reset(); }
  void reset() override {
    shift = register_parameter("shift", at::zeros({1, 10}, at::kComplexFloat));
  }
  at::Tensor forward(const at::Tensor& x) const { return x + shift; }
  at::Tensor shift;
};

TEST_P(ReplicateLayersTest, ComplexParametersStayComplex) {
  const auto net = placed(std::make_shared<ShiftImpl>());
  const at::Tensor x = random_tensor({1, 10}, 1, at::kComplexFloat);
  for (const auto& replica : replicate(net, devices())) {
    EXPECT_THAT(replica->forward(beside(*replica, x)).detach(), BitwiseEqual(x));
  }
  expect_gradients_of_one_device<ShiftImpl>(
      net, devices(),
      [&](ShiftImpl& m, int64_t i) {
        return m.forward(beside(m, x * static_cast<double>(i + 1))).abs().sum();
      },
      {1e-5, 1e-6});
}

// Four convolutions of 2 x 2, of which some are channels_last and some are half precision.
struct ConvsImpl : torch::nn::Module {
  int64_t num_channels_last = 0;
  int64_t num_half = 0;

  torch::nn::Sequential make() const {
    torch::nn::Sequential net;
    const std::vector<int64_t> channels = {8, 16, 32, 16, 8};
    for (int64_t i = 0; i < 4; ++i) {
      torch::nn::Conv2d conv(torch::nn::Conv2dOptions(channels[i], channels[i + 1], 2));
      if (i >= 4 - num_half) {
        conv->to(at::kHalf);
      }
      if (i < num_channels_last) {
        conv->weight.set_data(conv->weight.contiguous(at::MemoryFormat::ChannelsLast));
      }
      net->push_back(conv);
    }
    return net;
  }
};

at::Tensor convolve(torch::nn::SequentialImpl& net, int64_t i) {
  at::Tensor x = beside(net, random_tensor({8, 8, 6, 6}, 60 + i, at::kFloat) * 0.5);
  for (const auto& layer : net.children()) {
    auto* conv = layer->as<torch::nn::Conv2d>();
    x = conv->forward(x.to(conv->weight.scalar_type()));
  }
  return x.to(at::kFloat).mean();
}

TEST_P(ReplicateLayersTest, MemoryFormatsAndHalfPrecisionAreKept) {
  for (const int64_t num_channels_last : {0, 2, 4}) {
    for (const int64_t num_half : {0, 2, 4}) {
      ConvsImpl convs;
      convs.num_channels_last = num_channels_last;
      convs.num_half = num_half;
      const torch::nn::Sequential net = placed(convs.make());
      const auto parameters = net->parameters();
      for (auto& replica : replicate(net, devices())) {
        const auto copies = replica->parameters();
        for (size_t p = 0; p < parameters.size(); ++p) {
          EXPECT_EQ(copies[p].strides(), parameters[p].strides());
          EXPECT_EQ(copies[p].dtype(), parameters[p].dtype());
        }
      }
      const Tolerance tolerance = num_half > 0 ? Tolerance{1e-2, 1e-3} : Tolerance{1e-5, 1e-5};
      for (int iteration = 0; iteration < 2; ++iteration) {
        expect_gradients_of_one_device<torch::nn::SequentialImpl>(net.ptr(), devices(), convolve,
                                                                  tolerance);
      }
      auto replicas = replicate(net, devices());
      for (int64_t i = 0; i < k(); ++i) {
        convolve(*replicas[i], i).backward();
      }
      for (const at::Tensor& parameter : parameters) {
        EXPECT_EQ(parameter.grad().strides(), parameter.strides());
      }
    }
  }
}

TEST_P(ReplicateLayersTest, BatchNormReplicasNormaliseByTheirOwnPieces) {
  torch::nn::BatchNorm1d norm(4);
  norm->to(first(), at::kDouble);
  expect_gradients_of_one_device<torch::nn::BatchNorm1dImpl>(
      norm.ptr(), devices(), [](torch::nn::BatchNorm1dImpl& m, int64_t i) {
        return m.forward(beside(m, random_tensor({6, 4}, 70 + i))).pow(3).sum();
      });
}

}  // namespace
}  // namespace lockstep::replicate
