// SPDX-License-Identifier: Apache-2.0
// structure.h: notices when a module tree has other tensors or children than it had.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <vector>

namespace lockstep::replicate::internal {

// The identities of all modules, parameters, buffers and extra tensors of a tree at one moment. The
// tensors must be kept alive by the owner, so that no new one takes the address of a removed one.
class Structure {
 public:
  Structure() = default;
  explicit Structure(torch::nn::Module& root);

  // Whether `root` still consists of the very same modules and tensors. A tensor that was changed
  // in place, also by set_data() or to(), is the same tensor. Cheap: no names are read.
  bool matches(torch::nn::Module& root) const;

 private:
  std::vector<const void*> identities_;
  // Kept alive, so that a new child cannot be mistaken for a removed one at the same address.
  std::vector<std::shared_ptr<torch::nn::Module>> children_;
};

}  // namespace lockstep::replicate::internal
