// SPDX-License-Identifier: Apache-2.0
// models: the networks that the rows are measured on, written as users write theirs.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformerlayer.h>

#include <cstdint>
#include <vector>

namespace lockstep::benchmarks {

// Linear layers of the given widths with ReLU between them.
class Mlp : public torch::nn::Cloneable<Mlp> {
 public:
  explicit Mlp(std::vector<int64_t> widths);
  void reset() override;
  at::Tensor forward(at::Tensor x);

 private:
  std::vector<int64_t> widths_;
  std::vector<torch::nn::Linear> layers_;
};

// Two convolutions with BatchNorm and two linear layers, for images of 1x28x28.
class ConvNet : public torch::nn::Cloneable<ConvNet> {
 public:
  ConvNet();
  void reset() override;
  at::Tensor forward(at::Tensor x);

 private:
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::Conv2d conv2_{nullptr};
  torch::nn::BatchNorm2d norm1_{nullptr};
  torch::nn::BatchNorm2d norm2_{nullptr};
  torch::nn::Linear hidden_{nullptr};
  torch::nn::Linear output_{nullptr};
};

// One block of a ResNet-18: two 3x3 convolutions around which the input is added again.
class ResidualBlock : public torch::nn::Cloneable<ResidualBlock> {
 public:
  ResidualBlock(int64_t in_channels, int64_t out_channels, int64_t stride);
  void reset() override;
  at::Tensor forward(const at::Tensor& x);

 private:
  int64_t in_channels_;
  int64_t out_channels_;
  int64_t stride_;
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::Conv2d conv2_{nullptr};
  torch::nn::Conv2d shortcut_{nullptr};  // where the shape changes
  torch::nn::BatchNorm2d norm1_{nullptr};
  torch::nn::BatchNorm2d norm2_{nullptr};
  torch::nn::BatchNorm2d shortcut_norm_{nullptr};
};

// ResNet-18 with 1,000 classes.
class ResNet18 : public torch::nn::Cloneable<ResNet18> {
 public:
  ResNet18();
  void reset() override;
  at::Tensor forward(at::Tensor x);

 private:
  torch::nn::Conv2d conv_{nullptr};
  torch::nn::BatchNorm2d norm_{nullptr};
  std::vector<std::shared_ptr<ResidualBlock>> blocks_;
  torch::nn::Linear output_{nullptr};
};

// An LSTM 32-64 over the sequence and a linear layer on its last output.
class LstmClassifier : public torch::nn::Cloneable<LstmClassifier> {
 public:
  LstmClassifier();
  void reset() override;
  at::Tensor forward(const at::Tensor& x);

 private:
  torch::nn::LSTM lstm_{nullptr};
  torch::nn::Linear output_{nullptr};
};

// One encoder layer, 128 wide, 4 heads, dropout 0.1; the batch comes first.
class TransformerLayer : public torch::nn::Cloneable<TransformerLayer> {
 public:
  TransformerLayer();
  void reset() override;
  at::Tensor forward(const at::Tensor& x);

 private:
  torch::nn::TransformerEncoderLayer layer_{nullptr};
};

// Many small parameters and no computation: what remains is the cost of handling them.
class ManyParameters : public torch::nn::Cloneable<ManyParameters> {
 public:
  ManyParameters(int64_t num_parameters, int64_t num_elements);
  void reset() override;

 private:
  int64_t num_parameters_;
  int64_t num_elements_;
};

}  // namespace lockstep::benchmarks
