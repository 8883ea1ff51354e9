// SPDX-License-Identifier: Apache-2.0
// train: one pass over a data set, for learning or for measuring. The network is any function of
// images: a bare module on one device and a DataParallel on several run through the same loop.
//   EpochResult result = train_epoch(forward, optimizer, train, {order, 128, device}, hooks);
//   EpochResult test = evaluate(forward, test, {1000, device});
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "examples/fashion_mnist/idx.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace fashion_mnist {

// Images [N, 1, 28, 28] -> scores [N, 10].
using Forward = std::function<at::Tensor(const at::Tensor& images)>;

struct EpochPlan {
  at::Tensor order;  // sample indices, int64 [n]
  int64_t batch_size = 0;
  c10::Device device = at::kCPU;  // where batches go and losses are computed
  double first_lr = 0;            // the learning rate falls in a line from here ...
  double last_lr = 0;             // ... to here, which the next epoch starts with
};

struct EpochHooks {
  // Called after each batch with the samples done and the mean loss so far.
  std::function<void(int64_t done, const std::function<double()>& mean_loss)> on_batch;
  // Asked after each batch; true ends the epoch early.
  std::function<bool()> should_stop;
};

struct EpochResult {
  int64_t samples = 0;
  double loss = 0;      // mean over the samples
  double accuracy = 0;  // 0 to 1
  double seconds = 0;
  double samples_per_second() const { return seconds > 0 ? samples / seconds : 0; }
};

// Trains on the samples of plan.order, batch by batch; the last batch may be smaller.
EpochResult train_epoch(const Forward& forward, torch::optim::Optimizer& optimizer,
                        const Dataset& dataset, const EpochPlan& plan,
                        const EpochHooks& hooks = {});

struct EvaluateOptions {
  int64_t batch_size = 1000;
  c10::Device device = at::kCPU;
  std::function<bool()> should_stop;
};

// Measures without learning. The caller puts the module into evaluation mode.
EpochResult evaluate(const Forward& forward, const Dataset& dataset,
                     const EvaluateOptions& options);

}  // namespace fashion_mnist
