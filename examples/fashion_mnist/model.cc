// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/model.h"

#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>

#include "examples/fashion_mnist/idx.h"

namespace fashion_mnist {
namespace {

constexpr int64_t kChannels1 = 16;
constexpr int64_t kChannels2 = 32;
constexpr int64_t kHidden = 128;
constexpr int64_t kPooledSide = kImageSide / 4;

}  // namespace

NetImpl::NetImpl(const NetOptions& options) : options_(options) { reset(); }

void NetImpl::reset() {
  using torch::nn::Conv2dOptions;
  // The normalisation that follows a convolution takes its bias away again: none is learnt.
  conv1_ = register_module(
      "conv1", torch::nn::Conv2d(Conv2dOptions(1, kChannels1, 3).padding(1).bias(false)));
  norm1_ = register_module("norm1", torch::nn::BatchNorm2d(kChannels1));
  conv2_ = register_module(
      "conv2", torch::nn::Conv2d(Conv2dOptions(kChannels1, kChannels2, 3).padding(1).bias(false)));
  norm2_ = register_module("norm2", torch::nn::BatchNorm2d(kChannels2));
  dropout_ = register_module("dropout", torch::nn::Dropout(options_.dropout));
  hidden_ =
      register_module("hidden", torch::nn::Linear(kChannels2 * kPooledSide * kPooledSide, kHidden));
  scores_ = register_module("scores", torch::nn::Linear(kHidden, kNumClasses));
}

at::Tensor NetImpl::forward(const at::Tensor& images) {
  at::Tensor x = at::max_pool2d(at::relu(norm1_(conv1_(images))), 2);
  x = at::max_pool2d(at::relu(norm2_(conv2_(x))), 2);
  x = at::relu(hidden_(dropout_(x.flatten(1))));
  return scores_(x);
}

}  // namespace fashion_mnist
