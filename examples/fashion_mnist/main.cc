// SPDX-License-Identifier: Apache-2.0
// fashion_mnist: trains a small convolutional network on Fashion-MNIST, on several devices.
// Read run.cc for the program; README.md for what it prints and its exit codes.
#include <absl/flags/flag.h>
#include <absl/flags/parse.h>
#include <absl/flags/usage.h>
#include <c10/util/Exception.h>
#include <unistd.h>

#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>

#include "examples/fashion_mnist/interrupt.h"
#include "examples/fashion_mnist/paths.h"
#include "examples/fashion_mnist/progress.h"
#include "examples/fashion_mnist/run.h"

ABSL_FLAG(std::string, devices, "",
          "Where to train: cpu,cpu or cuda:0,cuda:1. Default: every CUDA device, else cpu,cpu.");
ABSL_FLAG(int64_t, epochs, 5, "Passes over the training set, those of --load included.");
ABSL_FLAG(int64_t, batch_size, 128, "Samples per step, over all devices together.");
ABSL_FLAG(double, lr, 0.05, "Learning rate at the start; it falls in a line to 0.");
ABSL_FLAG(uint64_t, seed, 1, "Of the first weights, the order of samples, and dropout.");
ABSL_FLAG(int64_t, limit, 0, "Use only that many training and test samples; 0: all.");
ABSL_FLAG(std::string, data_dir, "",
          "Folder with the four IDX files, plain or gzipped. Default: what Bazel fetched.");
ABSL_FLAG(std::string, output_dir, "fashion_mnist_run",
          "Folder for the checkpoint and the curves; made if it is not there.");
ABSL_FLAG(std::string, load, "",
          "A checkpoint to continue up to --epochs, or to evaluate if it is there already.");
ABSL_FLAG(bool, check, false,
          "Compare gradients with one device for three steps instead of training.");

namespace {

using fashion_mnist::RunOptions;

std::string path_of(const absl::Flag<std::string>& flag) {
  const std::string path = absl::GetFlag(flag);
  if (path.empty()) return path;
  return fashion_mnist::resolve_path(path, fashion_mnist::user_folder_from_env());
}

RunOptions options_from_flags(const std::string& program) {
  RunOptions options;
  options.devices = absl::GetFlag(FLAGS_devices);
  options.epochs = absl::GetFlag(FLAGS_epochs);
  options.batch_size = absl::GetFlag(FLAGS_batch_size);
  options.lr = absl::GetFlag(FLAGS_lr);
  options.seed = absl::GetFlag(FLAGS_seed);
  options.limit = absl::GetFlag(FLAGS_limit);
  options.data_dir = path_of(FLAGS_data_dir);
  options.output_dir = path_of(FLAGS_output_dir);
  options.load = path_of(FLAGS_load);
  options.check = absl::GetFlag(FLAGS_check);
  options.terminal = fashion_mnist::is_terminal(STDOUT_FILENO);
  if (options.data_dir.empty()) {
    const auto found = fashion_mnist::find_data_dir(".", program);
    if (!found) throw std::runtime_error("no data set found: name its folder with --data_dir");
    options.data_dir = *found;
  }
  return options;
}

// The first line: a c10::Error goes on with a stack trace.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "trains a small network on Fashion-MNIST on several devices; see --help=main");
  const auto rest = absl::ParseCommandLine(argc, argv);
  try {
    if (rest.size() > 1) throw std::runtime_error(std::string("not a flag: ") + rest[1]);
    fashion_mnist::watch_for_interrupt();
    return fashion_mnist::run(options_from_flags(argv[0]), std::cout);
  } catch (const std::exception& error) {
    std::cerr << "fashion_mnist: " << first_line(error.what()) << std::endl;
    return 1;
  }
}
