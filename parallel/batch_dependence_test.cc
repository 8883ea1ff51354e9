// SPDX-License-Identifier: Apache-2.0
#include "parallel/batch_dependence.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformer.h>
#include <torch/nn/modules/transformerlayer.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "testing/matchers.h"

namespace lockstep::parallel::internal {
namespace {

namespace nn = torch::nn;
using lockstep::testing::ThrowsError;

// What was found, as "path: type: reason", or "nothing".
std::string found_in(const nn::Module& module) {
  const auto found = find_batch_dependence(module);
  return found ? found->path + ": " + found->type + ": " + found->reason : "nothing";
}

struct Layer {
  std::string type;
  std::shared_ptr<nn::Module> module;
  std::string in_train;
  std::string in_eval = "nothing";
};

const char* const kNormalises = "normalises by its batch";
const char* const kStatistics = "keeps statistics of its batch";
const char* const kDraws = "draws random numbers";
const char* const kShortens = "shortens the rows it looks up, which replicas do apart";

template <class Impl, class... Arguments>
Layer layer(const char* type, const char* in_train, const char* in_eval, Arguments&&... arguments) {
  const std::string name = ": torch::nn::" + std::string(type) + ": ";
  return {type, std::make_shared<Impl>(std::forward<Arguments>(arguments)...),
          in_train == nullptr ? "nothing" : name + in_train,
          in_eval == nullptr ? "nothing" : name + in_eval};
}

std::vector<Layer> dependent_layers() {
  const auto tracked = [](auto options) { return options.track_running_stats(true); };
  const auto untracked = [](auto options) { return options.track_running_stats(false); };
  const nn::FractionalMaxPool2dOptions pool2 = nn::FractionalMaxPool2dOptions(2).output_size(2);
  const nn::FractionalMaxPool3dOptions pool3 = nn::FractionalMaxPool3dOptions(2).output_size(2);
  return {
      layer<nn::BatchNorm1dImpl>("BatchNorm1dImpl", kNormalises, nullptr, 3),
      layer<nn::BatchNorm2dImpl>("BatchNorm2dImpl", kNormalises, nullptr, 3),
      layer<nn::BatchNorm3dImpl>("BatchNorm3dImpl", kNormalises, nullptr, 3),
      layer<nn::BatchNorm1dImpl>("BatchNorm1dImpl", kNormalises, kNormalises,
                                 untracked(nn::BatchNormOptions(3))),
      layer<nn::BatchNorm2dImpl>("BatchNorm2dImpl", kNormalises, kNormalises,
                                 untracked(nn::BatchNormOptions(3))),
      layer<nn::BatchNorm3dImpl>("BatchNorm3dImpl", kNormalises, kNormalises,
                                 untracked(nn::BatchNormOptions(3))),
      layer<nn::InstanceNorm1dImpl>("InstanceNorm1dImpl", kStatistics, nullptr,
                                    tracked(nn::InstanceNormOptions(3))),
      layer<nn::InstanceNorm2dImpl>("InstanceNorm2dImpl", kStatistics, nullptr,
                                    tracked(nn::InstanceNormOptions(3))),
      layer<nn::InstanceNorm3dImpl>("InstanceNorm3dImpl", kStatistics, nullptr,
                                    tracked(nn::InstanceNormOptions(3))),
      layer<nn::DropoutImpl>("DropoutImpl", kDraws, nullptr, 0.1),
      layer<nn::Dropout2dImpl>("Dropout2dImpl", kDraws, nullptr, 0.1),
      layer<nn::Dropout3dImpl>("Dropout3dImpl", kDraws, nullptr, 0.1),
      layer<nn::AlphaDropoutImpl>("AlphaDropoutImpl", kDraws, nullptr, 0.1),
      layer<nn::FeatureAlphaDropoutImpl>("FeatureAlphaDropoutImpl", kDraws, nullptr, 0.1),
      layer<nn::RReLUImpl>("RReLUImpl", kDraws, nullptr),
      layer<nn::RNNImpl>("RNNImpl", kDraws, nullptr,
                         nn::RNNOptions(2, 3).num_layers(2).dropout(0.1)),
      layer<nn::LSTMImpl>("LSTMImpl", kDraws, nullptr,
                          nn::LSTMOptions(2, 3).num_layers(2).dropout(0.1)),
      layer<nn::GRUImpl>("GRUImpl", kDraws, nullptr,
                         nn::GRUOptions(2, 3).num_layers(2).dropout(0.1)),
      layer<nn::MultiheadAttentionImpl>("MultiheadAttentionImpl", kDraws, nullptr,
                                        nn::MultiheadAttentionOptions(4, 2).dropout(0.1)),
      layer<nn::FractionalMaxPool2dImpl>("FractionalMaxPool2dImpl", kDraws, kDraws, pool2),
      layer<nn::FractionalMaxPool3dImpl>("FractionalMaxPool3dImpl", kDraws, kDraws, pool3),
      layer<nn::EmbeddingImpl>("EmbeddingImpl", kShortens, kShortens,
                               nn::EmbeddingOptions(5, 2).max_norm(1)),
      layer<nn::EmbeddingBagImpl>("EmbeddingBagImpl", kShortens, kShortens,
                                  nn::EmbeddingBagOptions(5, 2).max_norm(1)),
  };
}

std::vector<Layer> independent_layers() {
  const auto fine = [](const char* type, auto module) {
    return Layer{type, module.ptr(), "nothing"};
  };
  return {
      fine("Linear", nn::Linear(2, 3)),
      fine("Conv2d", nn::Conv2d(nn::Conv2dOptions(2, 3, 3))),
      fine("LayerNorm", nn::LayerNorm(nn::LayerNormOptions({3}))),
      fine("GroupNorm", nn::GroupNorm(nn::GroupNormOptions(2, 4))),
      fine("InstanceNorm2d", nn::InstanceNorm2d(3)),
      fine("LocalResponseNorm", nn::LocalResponseNorm(2)),
      fine("Embedding", nn::Embedding(5, 2)),
      fine("EmbeddingBag", nn::EmbeddingBag(5, 2)),
      fine("ReLU", nn::ReLU()),
      fine("MaxPool2d", nn::MaxPool2d(2)),
      fine("Dropout with p = 0", nn::Dropout(0.0)),
      fine("AlphaDropout with p = 0", nn::AlphaDropout(0.0)),
      fine("LSTM", nn::LSTM(2, 3)),
      fine("LSTM of one layer with dropout", nn::LSTM(nn::LSTMOptions(2, 3).dropout(0.1))),
      fine("LSTM of two layers", nn::LSTM(nn::LSTMOptions(2, 3).num_layers(2))),
      fine("LSTMCell", nn::LSTMCell(2, 3)),
      fine("MultiheadAttention", nn::MultiheadAttention(4, 2)),
      fine("Transformer without dropout",
           nn::Transformer(nn::TransformerOptions(4, 2, 1, 1).dim_feedforward(8).dropout(0))),
  };
}

TEST(BatchDependenceTest, NamesLayersInWhichRowsMeetOrChanceDoes) {
  for (const Layer& layer : dependent_layers()) {
    EXPECT_EQ(found_in(*layer.module), layer.in_train) << layer.type;
    layer.module->eval();
    EXPECT_EQ(found_in(*layer.module), layer.in_eval) << layer.type << " in eval mode";
  }
}

TEST(BatchDependenceTest, FindsNothingInLayersThatTakeRowsOneByOne) {
  for (const Layer& layer : independent_layers()) {
    EXPECT_EQ(found_in(*layer.module), "nothing") << layer.type;
    check_batch_independent("op", *layer.module);
  }
}

TEST(BatchDependenceTest, FindsTheDropoutOfTransformers) {
  const nn::TransformerOptions options(4, 2, 1, 1);
  EXPECT_EQ(found_in(*nn::Transformer(options)),
            "encoder.layers.0.self_attn: torch::nn::MultiheadAttentionImpl: draws random numbers");
  EXPECT_EQ(found_in(*nn::TransformerEncoderLayer(4, 2)),
            "self_attn: torch::nn::MultiheadAttentionImpl: draws random numbers");
  EXPECT_EQ(found_in(*nn::TransformerDecoderLayer(4, 2)),
            "self_attn: torch::nn::MultiheadAttentionImpl: draws random numbers");
}

// A type of the user's that is one of LibTorch's too.
struct QuietDropoutImpl : nn::DropoutImpl {
  using nn::DropoutImpl::DropoutImpl;
};

TEST(BatchDependenceTest, LooksIntoChildrenInOrderByTheirOwnModes) {
  nn::ModuleList inner(nn::ReLU(), nn::BatchNorm1d(3), std::make_shared<QuietDropoutImpl>(0.5));
  nn::ModuleList net(nn::Linear(3, 3), inner, nn::Dropout(0.5));
  EXPECT_EQ(found_in(*net), "1.1: torch::nn::BatchNorm1dImpl: normalises by its batch");
  inner[1]->eval();
  EXPECT_THAT(found_in(*net), ::testing::StartsWith("1.2: "));
  EXPECT_THAT(found_in(*net), ::testing::HasSubstr("QuietDropoutImpl: draws random numbers"));
  inner[2]->eval();
  EXPECT_EQ(found_in(*net), "2: torch::nn::DropoutImpl: draws random numbers");
  net[2]->eval();
  EXPECT_EQ(found_in(*net), "nothing");
  check_batch_independent("op", *net);
}

TEST(BatchDependenceTest, RefusesWithASentenceThatSaysWhatToDo) {
  const nn::ModuleList net(nn::Linear(3, 3), nn::BatchNorm1d(3));
  EXPECT_THAT([&] { check_batch_independent("DataParallel", *net); },
              ThrowsError("[DataParallel] DevicePolicy::kAutomatic would let the clock change "
                          "results: '1' (torch::nn::BatchNorm1dImpl) normalises by its batch; "
                          "choose kReplicas or kOneDevice, or set "
                          "DataParallelOptions::allow_automatic_to_change_results"));
  const nn::Dropout alone(0.5);
  EXPECT_THAT([&] { check_batch_independent("DataParallel", *alone); },
              ThrowsError("results: the module (torch::nn::DropoutImpl) draws random numbers"));
}

}  // namespace
}  // namespace lockstep::parallel::internal
