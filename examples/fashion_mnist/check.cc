// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/check.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <ostream>
#include <stdexcept>

#include "comm/scatter.h"
#include "examples/fashion_mnist/batches.h"
#include "examples/fashion_mnist/model.h"
#include "parallel/data_parallel.h"

namespace fashion_mnist {
namespace {

// The network, and a switch by which a single replica can be made wrong.
class CheckedNetImpl : public torch::nn::Cloneable<CheckedNetImpl> {
 public:
  CheckedNetImpl() { reset(); }
  void reset() override { net_ = register_module("net", Net(NetOptions{/*dropout=*/0.0})); }
  at::Tensor forward(const at::Tensor& images) {
    return net_(offset == 0 ? images : images + offset);
  }

  double offset = 0;

 private:
  Net net_{nullptr};
};

using ParallelNet = lockstep::parallel::DataParallel<CheckedNetImpl>;

// Which kernel sums in which order depends on the number of threads: every replica and the
// reference get one.
class OneThread {
 public:
  OneThread() : before_(at::get_num_threads()) { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

std::vector<at::Tensor> zeros_like_all(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> zeros;
  for (const at::Tensor& tensor : tensors) zeros.push_back(at::zeros_like(tensor));
  return zeros;
}

// One device, chunk after chunk: forward of each, the loss of all, backward of each.
std::vector<at::Tensor> reference_gradients(CheckedNetImpl& net, const Batch& batch,
                                            const std::vector<int64_t>& chunk_sizes) {
  std::vector<at::Tensor> scores, cut_scores;
  for (const at::Tensor& images : batch.images.split_with_sizes(chunk_sizes)) {
    scores.push_back(net.forward(images));
    cut_scores.push_back(scores.back().detach().requires_grad_());
  }
  const at::Tensor loss = at::cross_entropy_loss(at::cat(cut_scores), batch.labels);
  const auto score_gradients = torch::autograd::grad({loss}, cut_scores);
  const auto parameters = net.parameters();
  std::vector<at::Tensor> sums = zeros_like_all(parameters);
  for (size_t chunk = 0; chunk < scores.size(); ++chunk) {
    const auto parts = torch::autograd::grad({scores[chunk]}, parameters, {score_gradients[chunk]});
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += parts[i];
  }
  return sums;
}

void copy_values(CheckedNetImpl& from, CheckedNetImpl& to) {
  at::NoGradGuard no_grad;
  const auto copy_all = [](const std::vector<at::Tensor>& source,
                           const std::vector<at::Tensor>& destination) {
    for (size_t i = 0; i < source.size(); ++i) destination[i].copy_(source[i]);
  };
  copy_all(from.parameters(), to.parameters());
  copy_all(from.buffers(), to.buffers());
}

// A nan counts as largest and stays.
double larger(double a, double b) { return std::isnan(a) || a >= b ? a : b; }

double ratio(double difference, double scale) { return difference == 0 ? 0 : difference / scale; }

// Keeps the larger of what is known and what these gradients say.
void widen(GradientDifference& largest, const std::vector<at::Tensor>& parameters,
           const std::vector<at::Tensor>& expected) {
  double difference_squares = 0;
  double squares = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor found = parameters[i].grad().to(at::kDouble);
    const at::Tensor wanted = expected[i].to(at::kDouble);
    const at::Tensor difference = found - wanted;
    difference_squares += difference.square().sum().item<double>();
    squares += wanted.square().sum().item<double>();
    const double parameter =
        ratio(difference.abs().max().item<double>(), wanted.abs().max().item<double>());
    largest.parameter = larger(largest.parameter, parameter);
  }
  const double whole = ratio(std::sqrt(difference_squares), std::sqrt(squares));
  largest.whole = larger(largest.whole, whole);
}

const char* name_of(at::ScalarType dtype) { return dtype == at::kFloat ? "float32" : "float64"; }

}  // namespace

GradientDifference largest_gradient_difference(const Dataset& dataset, const CheckOptions& options,
                                               const GradientCase& which) {
  const OneThread one_thread;
  torch::manual_seed(options.seed);
  const c10::Device device = options.devices.front();
  const auto net = std::make_shared<CheckedNetImpl>();
  const auto reference = std::make_shared<CheckedNetImpl>();
  for (const auto& module : {net, reference}) {
    module->to(device, which.dtype);
    module->train(which.reference == Reference::kChunked);
  }
  lockstep::parallel::DataParallelOptions parallel_options;
  parallel_options.threads_per_replica = 1;
  ParallelNet parallel(net, options.devices, parallel_options);
  parallel.replicas().back()->offset = which.offset_in_last_replica;
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(options.lr));

  GradientDifference largest;
  const int64_t batch_size = std::min(options.batch_size, dataset.size());
  const at::Tensor order = shuffled_order(dataset.size(), options.seed, 0);
  for (int64_t step = 0; step < options.steps; ++step) {
    const int64_t first = step * batch_size % (dataset.size() - batch_size + 1);
    const Batch batch =
        make_batch(dataset, order.narrow(0, first, batch_size), {device, which.dtype});
    copy_values(*net, *reference);
    const auto chunk_sizes =
        which.reference == Reference::kFullBatch
            ? std::vector<int64_t>{batch_size}
            : lockstep::comm::even_sizes(batch_size, static_cast<int64_t>(options.devices.size()));
    const auto expected = reference_gradients(*reference, batch, chunk_sizes);

    optimizer.zero_grad();
    at::cross_entropy_loss(parallel.forward(batch.images), batch.labels).backward();
    widen(largest, net->parameters(), expected);
    optimizer.step();
  }
  return largest;
}

double allowed_difference(const GradientCase& which) {
  if (which.reference == Reference::kChunked) return 0;
  return which.dtype == at::kDouble ? 1e-12 : 1e-6;
}

bool check_gradients(const Dataset& dataset, const CheckOptions& options, std::ostream& out) {
  const auto num_devices = static_cast<int64_t>(options.devices.size());
  if (num_devices < 2) throw std::runtime_error("--check compares at least two devices");
  if (std::min(options.batch_size, dataset.size()) < num_devices) {
    throw std::runtime_error("--check needs at least one sample for each device");
  }
  const auto print = [&out](const char* format, auto... args) {
    char line[160];
    std::snprintf(line, sizeof line, format, args...);
    out << line << std::endl;
  };
  bool good = true;
  for (const Reference reference : {Reference::kChunked, Reference::kFullBatch}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      const GradientCase which{dtype, reference};
      const GradientDifference difference = largest_gradient_difference(dataset, options, which);
      // Not "difference > allowed": that would let a nan pass.
      const bool within = difference.whole <= allowed_difference(which);
      good = good && within;
      print("%s, %-10s  largest gradient difference %.3g (allowed %g; in one parameter %.3g)  %s",
            name_of(dtype), reference == Reference::kChunked ? "chunked" : "full batch",
            difference.whole, allowed_difference(which), difference.parameter,
            within ? "ok" : "WRONG");
    }
  }
  const GradientCase perturbed{at::kDouble, Reference::kChunked, /*offset=*/1e-3};
  const double difference = largest_gradient_difference(dataset, options, perturbed).whole;
  const bool detected = !(difference <= allowed_difference(perturbed));
  print("perturbed replica %s: difference %.3g", detected ? "detected" : "NOT DETECTED",
        difference);
  good = good && detected;
  print("check %s: %lld steps of %lld samples on %lld replicas", good ? "passed" : "FAILED",
        static_cast<long long>(options.steps),
        static_cast<long long>(std::min(options.batch_size, dataset.size())),
        static_cast<long long>(num_devices));
  return good;
}

}  // namespace fashion_mnist
