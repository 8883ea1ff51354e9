// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/communication_stream.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <mutex>

#include "comm/stream_order.h"

namespace lockstep::comm::nccl {
namespace {

struct Streams {
  std::mutex mutex;
  std::map<c10::DeviceIndex, c10::Stream> by_device;  // a process has one type of accelerator
};

Streams& all_streams() {
  // Never destroyed: threads may still use it while the process ends.
  static auto* const streams = new Streams();
  return *streams;
}

}  // namespace

c10::Stream communication_stream(c10::Device device) {
  Streams& streams = all_streams();
  const std::lock_guard<std::mutex> lock(streams.mutex);
  const auto found = streams.by_device.find(device.index());
  if (found != streams.by_device.end()) {
    return found->second;
  }
  const c10::impl::VirtualGuardImpl guard(device.type());
  const c10::Stream made = guard.getStreamFromGlobalPool(device, /*isHighPriority=*/true);
  streams.by_device.emplace(device.index(), made);
  return made;
}

OnCommunicationStreams::OnCommunicationStreams(c10::ArrayRef<c10::Device> devices) {
  for (const c10::Device device : devices) {
    current_.push_back(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
    streams_.push_back(communication_stream(device));
  }
  for (size_t i = 0; i < streams_.size(); ++i) {
    make_wait(streams_[i], current_[i]);
  }
}

OnCommunicationStreams::~OnCommunicationStreams() {
  try {
    finish();
  } catch (...) {  // only on the way out of another exception, which says more
  }
}

void OnCommunicationStreams::use(const at::Tensor& tensor, size_t position) const {
  const c10::Stream& stream = streams_[position];
  const c10::impl::VirtualGuardImpl guard(stream.device_type());
  guard.recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
}

void OnCommunicationStreams::finish() {
  if (finished_) {
    return;
  }
  finished_ = true;
  for (size_t i = 0; i < streams_.size(); ++i) {
    make_wait(current_[i], streams_[i]);
  }
}

}  // namespace lockstep::comm::nccl
