// SPDX-License-Identifier: Apache-2.0
// checkpoint: everything a run needs to go on, in one torch archive.
// The module's tensors stand at the archive's root under the bare module's keys, so that
// torch::load(net, path) reads the file too; the rest lies beside them.
//   save_checkpoint("run.pt", *net, optimizer, {epoch, seed, history});
//   TrainingState state = load_checkpoint("run.pt", *net, &optimizer);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/fashion_mnist/curves.h"
#include "examples/fashion_mnist/model.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace fashion_mnist {

struct TrainingState {
  int64_t epoch = 0;  // whole epochs behind us
  uint64_t seed = 0;
  std::vector<EpochRow> history;  // one row per epoch
};

// Writes under a temporary name in the same folder and renames: `path` holds either the old
// checkpoint or the new one, never half of one.
// Throws:  std::runtime_error in one sentence if the file cannot be written.
void save_checkpoint(const std::string& path, const NetImpl& net,
                     const torch::optim::Optimizer& optimizer, const TrainingState& state);

// Copies the stored values into the tensors `net` already has, on whatever device they are, and
// restores `optimizer` unless it is null. Nothing of `net` changes if the file does not fit.
// Throws:  std::runtime_error in one sentence if the file is missing, is no such archive, or holds
//          another network.
TrainingState load_checkpoint(const std::string& path, NetImpl& net,
                              torch::optim::Optimizer* optimizer);

}  // namespace fashion_mnist
