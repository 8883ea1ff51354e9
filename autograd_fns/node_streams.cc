// SPDX-License-Identifier: Apache-2.0
#include "autograd_fns/node_streams.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "comm/stream_order.h"

namespace lockstep::autograd_fns {
namespace {

void record_use(const at::Tensor& tensor, const c10::Stream& stream) {
  const c10::impl::VirtualGuardImpl guard(stream.device_type());
  if (tensor.is_sparse()) {
    record_use(tensor._indices(), stream);
    record_use(tensor._values(), stream);
  } else {
    guard.recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
  }
}

}  // namespace

NodeStreams::NodeStreams(torch::autograd::Node& node, at::TensorList gradients,
                         c10::ArrayRef<c10::Device> devices) {
  const std::optional<c10::Stream> canonical = node.stream();
  if (!canonical) {
    return;
  }
  const c10::impl::VirtualGuardImpl guard(canonical->device_type());
  // The engine has made the node's stream current; who calls the node himself has his own.
  own_ = guard.getStream(canonical->device());
  const auto stream_of = [&](c10::Device device) -> std::optional<c10::Stream> {
    if (device.type() != own_->device_type() || device == own_->device()) {
      return std::nullopt;
    }
    const c10::Stream stream = guard.getStream(device);
    if (std::find(others_.begin(), others_.end(), stream) == others_.end()) {
      comm::make_wait(stream, *own_);
      others_.push_back(stream);
    }
    return stream;
  };
  for (const c10::Device device : devices) {
    stream_of(device);
  }
  for (const at::Tensor& gradient : gradients) {
    if (!gradient.defined()) {
      continue;
    }
    if (const std::optional<c10::Stream> stream = stream_of(gradient.device())) {
      record_use(gradient, *stream);
    }
  }
}

void NodeStreams::join() const {
  for (const c10::Stream& other : others_) {
    comm::make_wait(*own_, other);
  }
}

}  // namespace lockstep::autograd_fns
