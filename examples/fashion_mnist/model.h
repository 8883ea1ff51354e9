// SPDX-License-Identifier: Apache-2.0
// model: the convolutional network of this example; replace it by your own.
// Cloneable, so that replicas can be made of it; nothing here knows of devices or replicas.
//   Net net(NetOptions{});
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

namespace fashion_mnist {

struct NetOptions {
  double dropout = 0.25;
};

// Two blocks of convolution, batch normalisation and pooling, then two linear layers.
class NetImpl : public torch::nn::Cloneable<NetImpl> {
 public:
  explicit NetImpl(const NetOptions& options = {});

  void reset() override;

  // Shapes:  images [N, 1, 28, 28] -> scores [N, 10], before any softmax.
  at::Tensor forward(const at::Tensor& images);

 private:
  NetOptions options_;
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
  torch::nn::BatchNorm2d norm1_{nullptr}, norm2_{nullptr};
  torch::nn::Dropout dropout_{nullptr};
  torch::nn::Linear hidden_{nullptr}, scores_{nullptr};
};
TORCH_MODULE(Net);

}  // namespace fashion_mnist
