// SPDX-License-Identifier: Apache-2.0
// replica_state.h: persistent replicas of a module, without its static type. Internal to the
// project; users see replicate() and ReplicaSet<M>, and in parallel/ DataParallel<M>.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "replicate/gradient_router.h"
#include "replicate/replicate_options.h"
#include "replicate/structure.h"
#include "replicate/tensor_snapshot.h"
#include "replicate/twin.h"

namespace lockstep::replicate::internal {

// Note [Replicas Edited In Place]
// A layer's member tensor and its registry entry are two handles of one TensorImpl. So the tensors
// of a clone are changed in place, below their handles: given the storage of the original's, or a
// gradient edge that leads to the original. That works for every module that can be copied at all,
// with no hook in the layers. Handing out new tensors instead would need each module to put them
// into its members, which is what kept LibTorch's replicate from using a broadcast.
class ReplicaState {
 public:
  // Makes the replicas and synchronises them. devices[0] must hold the module.
  // Throws: c10::Error as replicate() does.
  ReplicaState(std::shared_ptr<torch::nn::Module> module, std::vector<c10::Device> devices,
               ReplicateOptions options, std::unique_ptr<GradientRouter> router);

  // Brings structure, values, modes, requires_grad and gradient edges in line with the original. A
  // buffer or extra tensor that a replica gave other memory, or a history, gets back what it had.
  // Threads: no replica may be in use meanwhile.
  void synchronize();

  const std::vector<std::shared_ptr<torch::nn::Module>>& replicas() const { return replicas_; }
  const std::vector<c10::Device>& devices() const { return devices_; }

  // How often the replicas' structure was made: 1, and more if the original's changed.
  int64_t num_builds() const { return num_builds_; }

 private:
  // One tensor of the original, however many names it has.
  struct Slot {
    std::string name;
    at::Tensor original;
    bool is_parameter = false;
    bool written_in_forward = false;
    uint32_t seen_version = 0;                     // the original's
    std::vector<uint32_t> copy_versions;           // by replica; of storage of its own
    std::vector<std::vector<at::Tensor>> handles;  // by replica, one or more
  };

  // A replica's handle of a buffer, as it should be when the next forward begins.
  struct BufferHandle {
    size_t slot;
    at::Tensor tensor;
    TensorSnapshot snapshot;
  };

  // Values to be copied to replicas that own storage.
  struct Transfer {
    std::vector<at::Tensor> sources;
    std::vector<std::vector<at::Tensor>> copies;  // aliases with version counters of their own
    std::vector<size_t> replicas;
  };

  void build();
  std::set<size_t> find_strays(bool& rerouted);
  void restore_extra_tensors();
  void remember_buffers();
  bool shares_storage(const Slot& slot, size_t replica) const;
  void adopt_layout(Slot& slot);
  void plan_transfers();
  void copy_values();
  void follow_modes();
  void route_gradients();

  const std::shared_ptr<torch::nn::Module> module_;
  const std::vector<c10::Device> devices_;
  const ReplicateOptions options_;
  const std::unique_ptr<GradientRouter> router_;

  Structure structure_;
  std::vector<std::shared_ptr<torch::nn::Module>> replicas_;
  std::vector<std::vector<ModulePair>> modules_;  // by replica
  std::vector<Slot> slots_;
  std::vector<TensorSnapshot> snapshots_;  // by slot: the originals, as the replicas follow them
  std::vector<BufferHandle> buffers_;
  std::vector<ExtraTensors> extras_;
  std::vector<Transfer> transfers_;
  std::vector<size_t> owned_somewhere_;  // slots of which some replica has its own storage
  int64_t num_builds_ = 0;
};

// A state whose gradients are summed by one node onto the originals. Normalises `devices`.
std::unique_ptr<ReplicaState> make_replica_state(std::shared_ptr<torch::nn::Module> module,
                                                 c10::ArrayRef<c10::Device> devices,
                                                 const ReplicateOptions& options);

}  // namespace lockstep::replicate::internal
