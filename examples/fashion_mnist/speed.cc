// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/speed.h"

#include <ATen/ops/arange.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <memory>

#include "examples/fashion_mnist/train.h"
#include "parallel/data_parallel.h"

namespace fashion_mnist {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Net copy_of(const Net& net) {
  Net copy(std::dynamic_pointer_cast<NetImpl>(net->clone()));
  copy->train();
  return copy;
}

}  // namespace

Speed compare_speed(const Net& net, const Dataset& dataset, const SpeedOptions& options) {
  Net single = copy_of(net);
  Net original = copy_of(net);
  lockstep::parallel::DataParallel<NetImpl> several(original.ptr(), options.devices);

  const c10::Device device = options.devices.front();
  const int64_t samples = std::min(options.batches * options.batch_size, dataset.size());
  const auto rate_of = [&](const Forward& forward, Net& trained) {
    torch::optim::SGD optimizer(trained->parameters(), torch::optim::SGDOptions(0));
    const EpochPlan plan{at::arange(samples, at::kLong), options.batch_size, device, 0, 0};
    return train_epoch(forward, optimizer, dataset, plan).samples_per_second();
  };
  const Forward one_forward = [&](const at::Tensor& images) { return single(images); };
  const Forward several_forward = [&](const at::Tensor& images) { return several.forward(images); };

  std::vector<double> one_rates, several_rates;
  for (int64_t round = 0; round < options.rounds; ++round) {
    one_rates.push_back(rate_of(one_forward, single));
    several_rates.push_back(rate_of(several_forward, original));
  }
  return {median(several_rates), median(one_rates)};
}

}  // namespace fashion_mnist
