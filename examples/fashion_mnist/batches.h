// SPDX-License-Identifier: Apache-2.0
// batches: picks samples by index and makes of their bytes what a network reads.
//   at::Tensor order = shuffled_order(train.size(), seed, epoch);
//   Batch batch = make_batch(train, order.narrow(0, first, count), {device, at::kFloat});
#pragma once

#include <ATen/core/Tensor.h>

#include "examples/fashion_mnist/idx.h"

namespace fashion_mnist {

struct Batch {
  at::Tensor images;  // floating point [N, 1, 28, 28], mean about 0, deviation about 1
  at::Tensor labels;  // int64 [N]
};

struct BatchOptions {
  c10::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;
};

// The samples that `indices` names, in that order.
// Shapes:  indices int64 [N], each in [0, dataset.size()).
// Devices: dataset and indices on the CPU; the batch on options.device.
Batch make_batch(const Dataset& dataset, const at::Tensor& indices,
                 const BatchOptions& options = {});

// A permutation of 0 .. count - 1 that depends on `seed` and `epoch` alone, so that a run continued
// from a checkpoint meets the samples in the order the first run would have.
at::Tensor shuffled_order(int64_t count, uint64_t seed, int64_t epoch);

}  // namespace fashion_mnist
