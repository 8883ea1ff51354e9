// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/checkpoint.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <system_error>

namespace fashion_mnist {
namespace {

constexpr int64_t kHistoryColumns = 7;

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw std::runtime_error(path + ": " + what);
}

at::Tensor to_tensor(const std::vector<EpochRow>& rows) {
  at::Tensor table = at::empty({static_cast<int64_t>(rows.size()), kHistoryColumns}, at::kDouble);
  double* cell = table.data_ptr<double>();
  for (const EpochRow& row : rows) {
    for (double value : {static_cast<double>(row.epoch), row.train_loss, row.train_accuracy,
                         row.test_loss, row.test_accuracy, row.seconds, row.samples_per_second}) {
      *cell++ = value;
    }
  }
  return table;
}

std::vector<EpochRow> to_rows(const std::string& path, const at::Tensor& table) {
  if (table.dim() != 2 || table.size(1) != kHistoryColumns || table.scalar_type() != at::kDouble) {
    fail(path, "its history has an unknown form");
  }
  std::vector<EpochRow> rows;
  const at::Tensor cells = table.cpu().contiguous();
  const double* v = cells.const_data_ptr<double>();
  for (int64_t i = 0; i < cells.size(0); ++i, v += kHistoryColumns) {
    rows.push_back({static_cast<int64_t>(v[0]), v[1], v[2], v[3], v[4], v[5], v[6]});
  }
  return rows;
}

int64_t read_int(torch::serialize::InputArchive& archive, const std::string& path,
                 const std::string& key) {
  c10::IValue value;
  if (!archive.try_read(key, value) || !value.isInt()) fail(path, "holds no " + key);
  return value.toInt();
}

// A fresh network with the file's values. Module::load replaces storage without looking at shapes,
// so it must not touch the network in use.
std::shared_ptr<NetImpl> read_network(torch::serialize::InputArchive& archive,
                                      const std::string& path, const NetImpl& like) {
  auto loaded = std::dynamic_pointer_cast<NetImpl>(like.clone(c10::Device(at::kCPU)));
  try {
    loaded->load(archive);
  } catch (const std::exception&) {
    fail(path, "does not hold this program's network");
  }
  const auto check = [&](const auto& expected, const auto& found) {
    for (const auto& item : expected) {
      if (found[item.key()].sizes() != item.value().sizes()) {
        fail(path, "holds another " + item.key() + " than this program's network");
      }
    }
  };
  check(like.named_parameters(), loaded->named_parameters());
  check(like.named_buffers(), loaded->named_buffers());
  return loaded;
}

void copy_values(const NetImpl& from, NetImpl& to) {
  at::NoGradGuard no_grad;
  const auto parameters = from.parameters();
  const auto buffers = from.buffers();
  for (size_t i = 0; i < parameters.size(); ++i) to.parameters()[i].copy_(parameters[i]);
  for (size_t i = 0; i < buffers.size(); ++i) to.buffers()[i].copy_(buffers[i]);
}

void write_archive(const std::string& path, const NetImpl& net,
                   const torch::optim::Optimizer& optimizer, const TrainingState& state) {
  torch::serialize::OutputArchive archive;
  net.save(archive);
  torch::serialize::OutputArchive optimizer_archive(archive.compilation_unit());
  optimizer.save(optimizer_archive);
  archive.write("optimizer", optimizer_archive);
  archive.write("epoch", c10::IValue(state.epoch));
  archive.write("seed", c10::IValue(static_cast<int64_t>(state.seed)));
  archive.write("history", to_tensor(state.history), /*is_buffer=*/true);
  archive.save_to(path);
}

}  // namespace

void save_checkpoint(const std::string& path, const NetImpl& net,
                     const torch::optim::Optimizer& optimizer, const TrainingState& state) {
  const std::string temporary = path + ".tmp." + std::to_string(getpid());
  try {
    write_archive(temporary, net, optimizer, state);
  } catch (const std::exception&) {
    std::remove(temporary.c_str());
    fail(path, "cannot be written");
  }
  std::error_code error;
  std::filesystem::rename(temporary, path, error);
  if (error) {
    std::remove(temporary.c_str());
    fail(path, "cannot be written: " + error.message());
  }
}

TrainingState load_checkpoint(const std::string& path, NetImpl& net,
                              torch::optim::Optimizer* optimizer) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) fail(path, "no such file");
  torch::serialize::InputArchive archive;
  try {
    archive.load_from(path, net.parameters().front().device());
  } catch (const std::exception&) {
    fail(path, "is not a torch archive, or is damaged");
  }
  const auto loaded = read_network(archive, path, net);
  TrainingState state;
  state.epoch = read_int(archive, path, "epoch");
  state.seed = static_cast<uint64_t>(read_int(archive, path, "seed"));
  at::Tensor table;
  if (!archive.try_read("history", table, /*is_buffer=*/true)) fail(path, "holds no history");
  state.history = to_rows(path, table);
  if (optimizer != nullptr) {
    try {
      torch::serialize::InputArchive optimizer_archive;
      archive.read("optimizer", optimizer_archive);
      optimizer->load(optimizer_archive);
    } catch (const std::exception&) {
      fail(path, "does not hold this program's optimizer");
    }
  }
  copy_values(*loaded, net);
  return state;
}

}  // namespace fashion_mnist
