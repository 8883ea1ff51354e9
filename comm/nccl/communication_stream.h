// SPDX-License-Identifier: Apache-2.0
// communication_stream: where collectives run. Each device has one stream for them, so that the
// kernels of all communicators which share devices run in one order; kernels that wait for each
// other on two streams could take turns differently on two devices, and wait for ever.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/util/ArrayRef.h>

#include <vector>

namespace lockstep::comm::nccl {

// The process's communication stream of an accelerator, made at the first call.
// Threads: safe.
c10::Stream communication_stream(c10::Device device);

// Brackets a collective: from its making the communication streams of `devices` come after the
// current streams, and from finish() on the current streams come after them. A bracket that is left
// by an exception finishes too, so that memory is not reused under what is still running.
class OnCommunicationStreams {
 public:
  // Devices: accelerators of one type, distinct, with indices.
  explicit OnCommunicationStreams(c10::ArrayRef<c10::Device> devices);
  ~OnCommunicationStreams();
  OnCommunicationStreams(const OnCommunicationStreams&) = delete;
  OnCommunicationStreams& operator=(const OnCommunicationStreams&) = delete;

  // By position in `devices`.
  const c10::Stream& stream(size_t position) const { return streams_[position]; }

  // Keeps the memory of a tensor on devices[position] from reuse until the collective is done,
  // also if its last owner lets go on another stream.
  void use(const at::Tensor& tensor, size_t position) const;

  void finish();

 private:
  std::vector<c10::Stream> current_;
  std::vector<c10::Stream> streams_;
  bool finished_ = false;
};

}  // namespace lockstep::comm::nccl
