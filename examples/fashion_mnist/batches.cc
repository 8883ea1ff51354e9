// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/batches.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>

namespace fashion_mnist {
namespace {

// Of the training images, as shares of the full range of a byte.
constexpr double kPixelMean = 0.2860;
constexpr double kPixelDeviation = 0.3530;

// Far apart for neighbouring seeds, so that no two runs share an epoch's order.
constexpr uint64_t kSeedStride = 0x9e3779b97f4a7c15;

}  // namespace

Batch make_batch(const Dataset& dataset, const at::Tensor& indices, const BatchOptions& options) {
  // Bytes travel to the device: a quarter of the traffic of floats.
  const at::Tensor bytes = dataset.images.index_select(0, indices).to(options.device);
  const at::Tensor images = bytes.to(options.dtype).div_(255).sub_(kPixelMean);
  const at::Tensor labels = dataset.labels.index_select(0, indices).to(options.device);
  return {images.div_(kPixelDeviation).unsqueeze(1), labels.to(at::kLong)};
}

at::Tensor shuffled_order(int64_t count, uint64_t seed, int64_t epoch) {
  at::Generator generator =
      at::detail::createCPUGenerator(seed * kSeedStride + static_cast<uint64_t>(epoch));
  return at::randperm(count, generator, at::kLong);
}

}  // namespace fashion_mnist
