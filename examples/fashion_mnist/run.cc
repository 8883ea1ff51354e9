// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/run.h"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <torch/cuda.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <ostream>
#include <stdexcept>
#include <system_error>

#include "examples/fashion_mnist/batches.h"
#include "examples/fashion_mnist/check.h"
#include "examples/fashion_mnist/checkpoint.h"
#include "examples/fashion_mnist/curves.h"
#include "examples/fashion_mnist/devices.h"
#include "examples/fashion_mnist/idx.h"
#include "examples/fashion_mnist/interrupt.h"
#include "examples/fashion_mnist/model.h"
#include "examples/fashion_mnist/progress.h"
#include "examples/fashion_mnist/speed.h"
#include "examples/fashion_mnist/train.h"
#include "parallel/data_parallel.h"

namespace fashion_mnist {
namespace {

constexpr double kMomentum = 0.9;
constexpr int64_t kEvaluationBatch = 1000;

template <class... Args>
std::string format(const char* pattern, Args... args) {
  char buffer[256];
  std::snprintf(buffer, sizeof buffer, pattern, args...);
  return buffer;
}

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!std::filesystem::is_directory(path)) {
    throw std::runtime_error("--output_dir=" + path + ": cannot be made a folder");
  }
}

// Everything a run holds; the network is made on the first device and stays there.
class Run {
 public:
  Run(const RunOptions& options, std::vector<c10::Device> devices, std::ostream& out)
      : options_(options),
        out_(out),
        train_(read(Split::kTrain)),
        test_(read(Split::kTest)),
        net_(make_net(options.seed, devices.front())),
        optimizer_(net_->parameters(),
                   torch::optim::SGDOptions(options.lr).momentum(kMomentum).nesterov(true)),
        parallel_(net_, std::move(devices)) {
    state_.seed = options.seed;
    if (!options.load.empty()) state_ = load_checkpoint(options.load, *net_, &optimizer_);
  }

  int go() {
    describe();
    if (state_.epoch >= options_.epochs) return evaluate_only();
    // Written before the first batch too: a folder that cannot be written to shows at once, and
    // Ctrl-C always finds a checkpoint to keep.
    make_folder(options_.output_dir);
    save_checkpoint(path("fashion_mnist.pt"), *net_, optimizer_, state_);
    CsvWriter csv(path("fashion_mnist.csv"));
    for (const EpochRow& row : state_.history) csv.append(row);
    while (state_.epoch < options_.epochs) {
      if (!next_epoch(csv)) return stop_early();
    }
    finish();
    return 0;
  }

 private:
  Dataset read(Split split) const {
    const Dataset dataset = read_dataset(options_.data_dir, split);
    return options_.limit == 0 ? dataset : first_samples(dataset, options_.limit);
  }

  static Net make_net(uint64_t seed, c10::Device device) {
    torch::manual_seed(seed);
    Net net;
    net->to(device);
    return net;
  }

  std::string path(const std::string& name) const {
    return (std::filesystem::path(options_.output_dir) / name).string();
  }
  c10::Device device() const { return parallel_.devices().front(); }
  Forward forward() {
    return [this](const at::Tensor& images) { return parallel_.forward(images); };
  }

  void describe() {
    out_ << "data: " << train_.size() << " training and " << test_.size() << " test samples from "
         << options_.data_dir << '\n'
         << "devices: " << device_names(parallel_.devices()) << "; batch size "
         << options_.batch_size << ", seed " << state_.seed << std::endl;
    if (!options_.load.empty()) {
      out_ << "loaded: " << options_.load << ", after epoch " << state_.epoch << std::endl;
    }
  }

  EpochResult measure() {
    net_->eval();
    return evaluate(forward(), test_, {kEvaluationBatch, device(), interrupted});
  }

  // False after Ctrl-C: the epoch is not whole and leaves nothing behind on disk.
  bool next_epoch(CsvWriter& csv) {
    const int64_t epoch = state_.epoch + 1;
    torch::manual_seed(state_.seed + static_cast<uint64_t>(epoch));
    net_->train();
    Progress progress(out_, {format("epoch %lld/%lld", static_cast<long long>(epoch),
                                    static_cast<long long>(options_.epochs)),
                             train_.size(), options_.terminal});
    EpochHooks hooks;
    hooks.on_batch = [&](int64_t done, const auto& loss) { progress.update(done, loss); };
    hooks.should_stop = interrupted;
    const auto rate = [&](int64_t done) {
      return options_.lr * (1 - static_cast<double>(done) / static_cast<double>(options_.epochs));
    };
    const EpochPlan plan{shuffled_order(train_.size(), state_.seed, epoch), options_.batch_size,
                         device(), rate(epoch - 1), rate(epoch)};
    const EpochResult trained = train_epoch(forward(), optimizer_, train_, plan, hooks);
    progress.finish(trained.samples, trained.loss);
    if (interrupted()) return false;
    const EpochResult tested = measure();
    if (interrupted()) return false;
    const EpochRow row{epoch,
                       trained.loss,
                       trained.accuracy,
                       tested.loss,
                       tested.accuracy,
                       trained.seconds,
                       trained.samples_per_second()};
    record(row, csv);
    return true;
  }

  void record(const EpochRow& row, CsvWriter& csv) {
    out_ << format("  test loss %.4f, test accuracy %.2f %%", row.test_loss,
                   100 * row.test_accuracy)
         << std::endl;
    state_.epoch = row.epoch;
    state_.history.push_back(row);
    save_checkpoint(path("fashion_mnist.pt"), *net_, optimizer_, state_);
    csv.append(row);
    write_svg(path("fashion_mnist.svg"), state_.history);
  }

  int stop_early() {
    out_ << "interrupted; kept " << path("fashion_mnist.pt") << ", the state after epoch "
         << state_.epoch << std::endl;
    return kInterruptedExitCode;
  }

  int evaluate_only() {
    const EpochResult tested = measure();
    if (interrupted()) return kInterruptedExitCode;
    out_ << format("test accuracy: %.2f %% (loss %.4f, %.0f samples/s)", 100 * tested.accuracy,
                   tested.loss, tested.samples_per_second())
         << std::endl;
    return 0;
  }

  void finish() {
    const EpochRow& last = state_.history.back();
    out_ << format("test accuracy: %.2f %%\ntraining speed: %.0f samples/s in the last epoch\n",
                   100 * last.test_accuracy, last.samples_per_second)
         << "checkpoint: " << path("fashion_mnist.pt") << "\ncurves: " << path("fashion_mnist.csv")
         << ", " << path("fashion_mnist.svg") << std::endl;
    const Speed speed = compare_speed(net_, train_, {parallel_.devices(), options_.batch_size});
    out_ << format(
                "measured now, in turns: %.0f samples/s on %s, %.0f on %s alone (%d threads): "
                "%.2f times one device",
                speed.several_devices, device_names(parallel_.devices()).c_str(), speed.one_device,
                device().str().c_str(), at::get_num_threads(),
                speed.several_devices / speed.one_device)
         << std::endl;
  }

  RunOptions options_;
  std::ostream& out_;
  Dataset train_, test_;
  Net net_;
  torch::optim::SGD optimizer_;
  lockstep::parallel::DataParallel<NetImpl> parallel_;
  TrainingState state_;
};

}  // namespace

void validate(const RunOptions& options) {
  const auto expect = [](bool good, const char* sentence) {
    if (!good) throw std::runtime_error(sentence);
  };
  expect(options.epochs >= 0, "--epochs: expected 0 or more");
  expect(options.batch_size >= 1, "--batch_size: expected 1 or more");
  expect(std::isfinite(options.lr) && options.lr > 0, "--lr: expected a number above 0");
  expect(options.limit >= 0, "--limit: expected 0, for all samples, or more");
  expect(!options.output_dir.empty(), "--output_dir: expected a folder");
  expect(options.epochs > 0 || !options.load.empty() || options.check,
         "--epochs=0 evaluates a checkpoint: name one with --load");
}

int run(const RunOptions& options, std::ostream& out) {
  validate(options);
  const auto devices =
      parse_devices(options.devices, static_cast<int64_t>(torch::cuda::device_count()));
  if (options.check) {
    const Dataset train = read_dataset(options.data_dir, Split::kTrain);
    const CheckOptions check{devices, options.batch_size, /*steps=*/3, options.seed, options.lr};
    return check_gradients(train, check, out) ? 0 : 1;
  }
  return Run(options, devices, out).go();
}

}  // namespace fashion_mnist
