// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/models.h"

#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>

#include <string>
#include <tuple>
#include <utility>

namespace lockstep::benchmarks {
namespace nn = torch::nn;

namespace {

nn::Conv2dOptions conv3x3(int64_t in, int64_t out, int64_t stride) {
  return nn::Conv2dOptions(in, out, 3).stride(stride).padding(1).bias(false);
}

}  // namespace

Mlp::Mlp(std::vector<int64_t> widths) : widths_(std::move(widths)) { reset(); }

void Mlp::reset() {
  layers_.clear();
  for (size_t i = 0; i + 1 < widths_.size(); ++i) {
    layers_.push_back(
        register_module("layer" + std::to_string(i), nn::Linear(widths_[i], widths_[i + 1])));
  }
}

at::Tensor Mlp::forward(at::Tensor x) {
  for (size_t i = 0; i < layers_.size(); ++i) {
    x = layers_[i](x);
    if (i + 1 < layers_.size()) x = at::relu(x);
  }
  return x;
}

ConvNet::ConvNet() { reset(); }

void ConvNet::reset() {
  conv1_ = register_module("conv1", nn::Conv2d(nn::Conv2dOptions(1, 16, 3).padding(1)));
  norm1_ = register_module("norm1", nn::BatchNorm2d(16));
  conv2_ = register_module("conv2", nn::Conv2d(nn::Conv2dOptions(16, 32, 3).padding(1)));
  norm2_ = register_module("norm2", nn::BatchNorm2d(32));
  hidden_ = register_module("hidden", nn::Linear(32 * 7 * 7, 128));
  output_ = register_module("output", nn::Linear(128, 10));
}

at::Tensor ConvNet::forward(at::Tensor x) {
  x = at::max_pool2d(at::relu(norm1_(conv1_(x))), 2);
  x = at::max_pool2d(at::relu(norm2_(conv2_(x))), 2);
  return output_(at::relu(hidden_(x.flatten(1))));
}

ResidualBlock::ResidualBlock(int64_t in_channels, int64_t out_channels, int64_t stride)
    : in_channels_(in_channels), out_channels_(out_channels), stride_(stride) {
  reset();
}

void ResidualBlock::reset() {
  conv1_ = register_module("conv1", nn::Conv2d(conv3x3(in_channels_, out_channels_, stride_)));
  norm1_ = register_module("norm1", nn::BatchNorm2d(out_channels_));
  conv2_ = register_module("conv2", nn::Conv2d(conv3x3(out_channels_, out_channels_, 1)));
  norm2_ = register_module("norm2", nn::BatchNorm2d(out_channels_));
  if (stride_ == 1 && in_channels_ == out_channels_) return;
  const auto options = nn::Conv2dOptions(in_channels_, out_channels_, 1);
  shortcut_ = register_module("shortcut",
                              nn::Conv2d(nn::Conv2dOptions(options).stride(stride_).bias(false)));
  shortcut_norm_ = register_module("shortcut_norm", nn::BatchNorm2d(out_channels_));
}

at::Tensor ResidualBlock::forward(const at::Tensor& x) {
  const at::Tensor changed = norm2_(conv2_(at::relu(norm1_(conv1_(x)))));
  const at::Tensor kept = shortcut_.is_empty() ? x : shortcut_norm_(shortcut_(x));
  return at::relu(changed + kept);
}

ResNet18::ResNet18() { reset(); }

void ResNet18::reset() {
  conv_ = register_module("conv",
                          nn::Conv2d(nn::Conv2dOptions(3, 64, 7).stride(2).padding(3).bias(false)));
  norm_ = register_module("norm", nn::BatchNorm2d(64));
  blocks_.clear();
  int64_t in_channels = 64;
  for (const int64_t out_channels : {64, 128, 256, 512}) {
    for (const int64_t stride : {out_channels == 64 ? 1 : 2, 1}) {
      const std::string name = "block" + std::to_string(blocks_.size());
      blocks_.push_back(register_module(
          name, std::make_shared<ResidualBlock>(in_channels, out_channels, stride)));
      in_channels = out_channels;
    }
  }
  output_ = register_module("output", nn::Linear(512, 1000));
}

at::Tensor ResNet18::forward(at::Tensor x) {
  x = at::max_pool2d(at::relu(norm_(conv_(x))), 3, 2, 1);
  for (const auto& block : blocks_) x = block->forward(x);
  return output_(x.mean({2, 3}));
}

LstmClassifier::LstmClassifier() { reset(); }

void LstmClassifier::reset() {
  lstm_ = register_module("lstm", nn::LSTM(nn::LSTMOptions(32, 64).batch_first(true)));
  output_ = register_module("output", nn::Linear(64, 10));
}

at::Tensor LstmClassifier::forward(const at::Tensor& x) {
  return output_(std::get<0>(lstm_(x)).select(1, -1));
}

TransformerLayer::TransformerLayer() { reset(); }

void TransformerLayer::reset() {
  layer_ = register_module(
      "layer", nn::TransformerEncoderLayer(
                   nn::TransformerEncoderLayerOptions(128, 4).dim_feedforward(512).dropout(0.1)));
}

at::Tensor TransformerLayer::forward(const at::Tensor& x) {
  return layer_(x.transpose(0, 1)).transpose(0, 1);
}

ManyParameters::ManyParameters(int64_t num_parameters, int64_t num_elements)
    : num_parameters_(num_parameters), num_elements_(num_elements) {
  reset();
}

void ManyParameters::reset() {
  for (int64_t i = 0; i < num_parameters_; ++i) {
    register_parameter("parameter" + std::to_string(i), at::zeros({num_elements_}));
  }
}

}  // namespace lockstep::benchmarks
