// SPDX-License-Identifier: Apache-2.0
// nccl_collectives: the engine for accelerators that NCCL connects. Give it to the options of a
// verb; on CUDA devices it is the default once an NCCL library can be loaded.
//   if (const nccl::NcclApi* library = nccl::find_nccl()) {
//     static NcclCollectives engine(*library);
//     options.collectives = &engine;
//   }
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/copy_collectives.h"
#include "comm/device_collectives.h"
#include "comm/nccl/nccl_api.h"
#include "comm/nccl/nccl_communicator.h"

namespace lockstep::comm {

// NCCL where it can do a call, plain copies where it cannot. NCCL takes a call if
//   its tensors hold elements and lie on distinct devices, at least two, of one accelerator type,
//   in one memory layout without gaps (channels_last in all of them, say);
//   in a reduce_add, the destination's device holds an input;
//   in a sum, the dtype is float, double, half, bfloat16, complex of float or double, an integer of
//   8, 32 or 64 bits, or bool.
// What copies do instead has the same results.
// Sums: NCCL chooses the order of the additions, and a mean is NCCL's own average. For two devices
//   the bits are those of CopyCollectives; for more the last ones may differ.
// Streams: runs on a communication stream per device, ordered with the current streams as the
//   interface asks; the host does not wait for the devices.
// Throws: NcclError and TimeoutError (errors.h) if NCCL fails; destinations then hold nothing
//   useful. The next call makes new communicators.
// Threads: safe. Launches are made one after another in the process, in one order on all devices.
class NcclCollectives : public DeviceCollectives {
 public:
  // `library` must outlive the engine; load_nccl() and find_nccl() give one that does.
  explicit NcclCollectives(const nccl::NcclApi& library,
                           const nccl::CommunicatorOptions& options = {});

  std::string name() const override { return "nccl"; }
  void copy(const at::Tensor& source, const at::Tensor& destination) override;
  void broadcast(const at::Tensor& source, at::TensorList destinations) override;
  void reduce_add(at::TensorList inputs, const at::Tensor& destination) override;
  void broadcast_grouped(c10::ArrayRef<BroadcastCall> calls) override;
  void reduce_add_grouped(c10::ArrayRef<ReduceAddCall> calls) override;
  void all_reduce(at::TensorList inputs, at::TensorList outputs, Reduction reduction) override;
  void reduce_scatter(at::TensorList inputs, at::TensorList outputs, Reduction reduction) override;
  void all_gather(at::TensorList inputs, at::TensorList outputs) override;
  CollectiveCounters counters() const override;
  void reset_counters() override;

  // From here on packing costs more than NCCL's calls for one more tensor. An estimate from the
  // host's 1 to 2 us a call and rank against a pass over memory; not measured on a GPU.
  int64_t unpacked_bytes() const override { return int64_t{1} << 20; }

  // Of the calls counted so far, those that NCCL did.
  int64_t nccl_calls() const { return nccl_calls_; }

 private:
  // What one rank's call of NCCL is given.
  struct Rank {
    size_t position;
    nccl::CommHandle comm;
    nccl::StreamHandle stream;
  };
  // One call of NCCL for each device: rank i reads sends[i] and writes receives[i]. An undefined
  // tensor stands for nothing.
  struct Operation {
    std::vector<c10::Device> devices;
    std::vector<at::Tensor> sends;
    std::vector<at::Tensor> receives;
    std::function<nccl::Result(const nccl::NcclApi&, const Rank&)> call;
    int64_t messages;
    int64_t message_bytes;
  };

  // None if NCCL cannot do it.
  static std::optional<Operation> make_broadcast(const at::Tensor& source,
                                                 at::TensorList destinations);
  static std::optional<Operation> make_reduce_add(at::TensorList inputs,
                                                  const at::Tensor& destination);

  // Launches operations on the same devices as one group.
  void launch(const char* op, c10::ArrayRef<Operation> operations);
  // The same for operations on any devices, in as many groups as that takes.
  void launch_all(const char* op, std::vector<Operation> operations);

  const nccl::NcclApi& library_;
  const nccl::CommunicatorOptions options_;
  CopyCollectives copies_;
  std::atomic<int64_t> nccl_calls_{0};
  std::atomic<int64_t> messages_{0};
  std::atomic<int64_t> bytes_{0};
};

}  // namespace lockstep::comm
