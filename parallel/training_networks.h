// SPDX-License-Identifier: Apache-2.0
// training_networks.h: small networks of the usual kinds, for tests that train. All but the
// transformer layer, which LibTorch has, label their rows with one of kClasses classes.
#pragma once

#include <ATen/ATen.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <tuple>

namespace lockstep::parallel {

constexpr int64_t kClasses = 5;

struct ResidualBlockImpl : torch::nn::Cloneable<ResidualBlockImpl> {
  ResidualBlockImpl(int64_t in, int64_t out, int64_t stride) : in(in), out(out), stride(stride) {
    ResidualBlockImpl::reset();
  }
  void reset() override {
    using Options = torch::nn::Conv2dOptions;
    conv1 = register_module(
        "conv1", torch::nn::Conv2d(Options(in, out, 3).stride(stride).padding(1).bias(false)));
    norm1 = register_module("norm1", torch::nn::BatchNorm2d(out));
    conv2 =
        register_module("conv2", torch::nn::Conv2d(Options(out, out, 3).padding(1).bias(false)));
    norm2 = register_module("norm2", torch::nn::BatchNorm2d(out));
    if (in != out) {
      shortcut = register_module("shortcut",
                                 torch::nn::Conv2d(Options(in, out, 1).stride(stride).bias(false)));
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = norm2(conv2(at::relu(norm1(conv1(x)))));
    return at::relu(y + (shortcut.is_empty() ? x : shortcut(x)));
  }

  int64_t in, out, stride;
  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr}, shortcut{nullptr};
  torch::nn::BatchNorm2d norm1{nullptr}, norm2{nullptr};
};
TORCH_MODULE(ResidualBlock);

struct ResNetImpl : torch::nn::Cloneable<ResNetImpl> {
  ResNetImpl() { ResNetImpl::reset(); }
  void reset() override {
    stem = register_module("stem", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 6, 3).padding(1)));
    norm = register_module("norm", torch::nn::BatchNorm2d(6));
    block1 = register_module("block1", ResidualBlock(6, 6, 1));
    block2 = register_module("block2", ResidualBlock(6, 8, 2));
    classifier = register_module("classifier", torch::nn::Linear(8, kClasses));
  }
  at::Tensor forward(const at::Tensor& images) {
    const at::Tensor x = at::max_pool2d(at::relu(norm(stem(images))), 2);
    return classifier(at::adaptive_avg_pool2d(block2(block1(x)), {1, 1}).flatten(1));
  }

  torch::nn::Conv2d stem{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  ResidualBlock block1{nullptr}, block2{nullptr};
  torch::nn::Linear classifier{nullptr};
};
TORCH_MODULE(ResNet);

// Labels sequences by their last step.
struct SequenceNetImpl : torch::nn::Cloneable<SequenceNetImpl> {
  SequenceNetImpl() { SequenceNetImpl::reset(); }
  void reset() override {
    lstm = register_module(
        "lstm",
        torch::nn::LSTM(
            torch::nn::LSTMOptions(4, 6).num_layers(2).bidirectional(true).batch_first(true)));
    classifier = register_module("classifier", torch::nn::Linear(12, kClasses));
  }
  at::Tensor forward(const at::Tensor& x) {
    return classifier(std::get<0>(lstm->forward(x)).select(1, -1));
  }

  torch::nn::LSTM lstm{nullptr};
  torch::nn::Linear classifier{nullptr};
};
TORCH_MODULE(SequenceNet);

// Labels sets of words by the mean of their vectors.
struct WordNetImpl : torch::nn::Cloneable<WordNetImpl> {
  explicit WordNetImpl(bool sparse) : sparse(sparse) { WordNetImpl::reset(); }
  void reset() override {
    words = register_module(
        "words", torch::nn::Embedding(torch::nn::EmbeddingOptions(11, 6).sparse(sparse)));
    classifier = register_module("classifier", torch::nn::Linear(6, kClasses));
  }
  at::Tensor forward(const at::Tensor& x) { return classifier(words(x).mean(1)); }

  bool sparse;
  torch::nn::Embedding words{nullptr};
  torch::nn::Linear classifier{nullptr};
};
TORCH_MODULE(WordNet);

}  // namespace lockstep::parallel
