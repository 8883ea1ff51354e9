// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/train.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/optimizer.h>

#include <algorithm>

#include "examples/fashion_mnist/batches.h"
#include "examples/fashion_mnist/progress.h"

namespace fashion_mnist {
namespace {

// Sums kept on the device: reading a number every batch would make the host wait for it.
class Totals {
 public:
  explicit Totals(c10::Device device)
      : sums_(at::zeros({2}, at::dtype(at::kDouble).device(device))) {}

  void add(const Batch& batch, const at::Tensor& scores, const at::Tensor& mean_loss) {
    at::NoGradGuard no_grad;
    samples_ += batch.labels.size(0);
    sums_[0] += mean_loss.detach().mul(batch.labels.size(0));
    sums_[1] += scores.argmax(1).eq(batch.labels).sum();
  }
  int64_t samples() const { return samples_; }
  double mean_loss() const { return mean(0); }

  // Reading the sums waits for the device, so it comes before the clock is read.
  EpochResult result(double start) const {
    EpochResult result{samples_, mean(0), mean(1), 0};
    result.seconds = steady_seconds() - start;
    return result;
  }

 private:
  double mean(int64_t index) const {
    return samples_ == 0 ? 0 : sums_[index].item<double>() / static_cast<double>(samples_);
  }

  at::Tensor sums_;
  int64_t samples_ = 0;
};

void set_learning_rate(torch::optim::Optimizer& optimizer, double lr) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(lr);
}

}  // namespace

EpochResult train_epoch(const Forward& forward, torch::optim::Optimizer& optimizer,
                        const Dataset& dataset, const EpochPlan& plan, const EpochHooks& hooks) {
  const double start = steady_seconds();
  const int64_t total = plan.order.size(0);
  Totals totals(plan.device);
  for (int64_t first = 0; first < total; first += plan.batch_size) {
    const int64_t count = std::min(plan.batch_size, total - first);
    const Batch batch = make_batch(dataset, plan.order.narrow(0, first, count), {plan.device});
    const double done = static_cast<double>(first) / static_cast<double>(total);
    set_learning_rate(optimizer, plan.first_lr + (plan.last_lr - plan.first_lr) * done);
    optimizer.zero_grad();
    const at::Tensor scores = forward(batch.images);
    const at::Tensor loss = at::cross_entropy_loss(scores, batch.labels);
    loss.backward();
    optimizer.step();
    totals.add(batch, scores, loss);
    if (hooks.on_batch) hooks.on_batch(totals.samples(), [&] { return totals.mean_loss(); });
    if (hooks.should_stop && hooks.should_stop()) break;
  }
  return totals.result(start);
}

EpochResult evaluate(const Forward& forward, const Dataset& dataset,
                     const EvaluateOptions& options) {
  at::NoGradGuard no_grad;
  const double start = steady_seconds();
  const at::Tensor order = at::arange(dataset.size(), at::kLong);
  Totals totals(options.device);
  for (int64_t first = 0; first < dataset.size(); first += options.batch_size) {
    const int64_t count = std::min(options.batch_size, dataset.size() - first);
    const Batch batch = make_batch(dataset, order.narrow(0, first, count), {options.device});
    const at::Tensor scores = forward(batch.images);
    totals.add(batch, scores, at::cross_entropy_loss(scores, batch.labels));
    if (options.should_stop && options.should_stop()) break;
  }
  return totals.result(start);
}

}  // namespace fashion_mnist
