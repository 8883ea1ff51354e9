// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_collectives.h"

#include <algorithm>
#include <utility>

#include "comm/internal/plain_memory.h"
#include "comm/nccl/communication_stream.h"
#include "comm/nccl/nccl_dtype.h"

namespace lockstep::comm {
namespace {

using nccl::Elements;
using nccl::NcclApi;
using nccl::RedOp;
using nccl::Result;

bool all_plain_alike(at::TensorList tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
    return internal::is_plain_memory(tensor) && tensor.strides() == tensors[0].strides();
  });
}

// The tensors' devices in order, if NCCL can connect them; else none.
std::vector<c10::Device> connected_devices(at::TensorList tensors) {
  std::vector<c10::Device> devices;
  for (const at::Tensor& tensor : tensors) {
    const c10::Device device = tensor.device();
    if (device.is_cpu() || device.type() != tensors[0].device().type() ||
        std::find(devices.begin(), devices.end(), device) != devices.end()) {
      return {};
    }
    devices.push_back(device);
  }
  return devices.size() > 1 ? devices : std::vector<c10::Device>();
}

RedOp op_for(const Elements& elements, Reduction reduction) {
  return reduction == Reduction::kMean ? RedOp::kAvg : elements.op;
}

int64_t bytes_of(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

}  // namespace

NcclCollectives::NcclCollectives(const NcclApi& library, const nccl::CommunicatorOptions& options)
    : library_(library), options_(options) {}

void NcclCollectives::copy(const at::Tensor& source, const at::Tensor& destination) {
  copies_.copy(source, destination);
}

// --- one to many and many to one ---------------------------------------------------------------

std::optional<NcclCollectives::Operation> NcclCollectives::make_broadcast(
    const at::Tensor& source, at::TensorList destinations) {
  std::vector<at::Tensor> receives = {source};
  receives.insert(receives.end(), destinations.begin(), destinations.end());
  std::vector<c10::Device> devices = connected_devices(receives);
  if (devices.empty() || source.numel() == 0 || !all_plain_alike(receives)) {
    return std::nullopt;
  }
  receives[0] = at::Tensor();
  const auto call = [source, receives](const NcclApi& nccl, const Rank& rank) {
    const Elements elements = nccl::as_bytes(source);
    const void* const send = source.const_data_ptr();
    void* const receive = rank.position == 0 ? const_cast<void*>(send)  // in place: only read
                                             : receives[rank.position].mutable_data_ptr();
    return nccl.broadcast(send, receive, elements.count, elements.dtype, /*root=*/0, rank.comm,
                          rank.stream);
  };
  return Operation{
      std::move(devices), {source}, receives, call, static_cast<int64_t>(destinations.size()),
      bytes_of(source)};
}

std::optional<NcclCollectives::Operation> NcclCollectives::make_reduce_add(
    at::TensorList inputs, const at::Tensor& destination) {
  std::vector<at::Tensor> tensors = inputs.vec();
  tensors.push_back(destination);
  std::vector<c10::Device> devices = connected_devices(inputs);
  const auto found = std::find(devices.begin(), devices.end(), destination.device());
  const std::optional<Elements> elements = nccl::as_summands(destination);
  if (found == devices.end() || !elements || elements->count == 0 || !all_plain_alike(tensors)) {
    return std::nullopt;
  }
  const auto root = static_cast<size_t>(found - devices.begin());
  tensors.pop_back();
  std::vector<at::Tensor> receives(devices.size());
  receives[root] = destination;
  const auto call = [tensors, destination, elements, root](const NcclApi& nccl, const Rank& rank) {
    void* const receive = rank.position == root ? destination.mutable_data_ptr() : nullptr;
    return nccl.reduce(tensors[rank.position].const_data_ptr(), receive, elements->count,
                       elements->dtype, elements->op, static_cast<int>(root), rank.comm,
                       rank.stream);
  };
  const auto messages = static_cast<int64_t>(devices.size()) - 1;
  return Operation{std::move(devices),   tensors, std::move(receives), call, messages,
                   bytes_of(destination)};
}

void NcclCollectives::broadcast(const at::Tensor& source, at::TensorList destinations) {
  if (const auto operation = make_broadcast(source, destinations)) {
    launch("broadcast", *operation);
  } else {
    copies_.broadcast(source, destinations);
  }
}

void NcclCollectives::reduce_add(at::TensorList inputs, const at::Tensor& destination) {
  if (const auto operation = make_reduce_add(inputs, destination)) {
    launch("reduce_add", *operation);
  } else {
    copies_.reduce_add(inputs, destination);
  }
}

void NcclCollectives::broadcast_grouped(c10::ArrayRef<BroadcastCall> calls) {
  std::vector<Operation> operations;
  for (const BroadcastCall& call : calls) {
    if (auto operation = make_broadcast(call.source, call.destinations)) {
      operations.push_back(*std::move(operation));
    } else {
      copies_.broadcast(call.source, call.destinations);
    }
  }
  launch_all("broadcast_grouped", std::move(operations));
}

void NcclCollectives::reduce_add_grouped(c10::ArrayRef<ReduceAddCall> calls) {
  std::vector<Operation> operations;
  for (const ReduceAddCall& call : calls) {
    if (auto operation = make_reduce_add(call.inputs, call.destination)) {
      operations.push_back(*std::move(operation));
    } else {
      copies_.reduce_add(call.inputs, call.destination);
    }
  }
  launch_all("reduce_add_grouped", std::move(operations));
}

// --- many to many ------------------------------------------------------------------------------

void NcclCollectives::all_reduce(at::TensorList inputs, at::TensorList outputs,
                                 Reduction reduction) {
  std::vector<at::Tensor> tensors = inputs.vec();
  tensors.insert(tensors.end(), outputs.begin(), outputs.end());
  const std::vector<c10::Device> devices = connected_devices(inputs);
  const std::optional<Elements> elements = nccl::as_summands(inputs[0]);
  if (devices.empty() || !elements || elements->count == 0 || !all_plain_alike(tensors)) {
    copies_.all_reduce(inputs, outputs, reduction);
    return;
  }
  const auto call = [&](const NcclApi& nccl, const Rank& rank) {
    return nccl.all_reduce(inputs[rank.position].const_data_ptr(),
                           outputs[rank.position].mutable_data_ptr(), elements->count,
                           elements->dtype, op_for(*elements, reduction), rank.comm, rank.stream);
  };
  const auto messages = 2 * (static_cast<int64_t>(devices.size()) - 1);
  launch("all_reduce",
         Operation{devices, inputs.vec(), outputs.vec(), call, messages, bytes_of(inputs[0])});
}

void NcclCollectives::reduce_scatter(at::TensorList inputs, at::TensorList outputs,
                                     Reduction reduction) {
  const std::vector<c10::Device> devices = connected_devices(inputs);
  const std::optional<Elements> elements = nccl::as_summands(outputs[0]);
  if (devices.empty() || !elements || elements->count == 0 || !all_plain_alike(inputs) ||
      !all_plain_alike(outputs)) {
    copies_.reduce_scatter(inputs, outputs, reduction);
    return;
  }
  const auto call = [&](const NcclApi& nccl, const Rank& rank) {
    return nccl.reduce_scatter(
        inputs[rank.position].const_data_ptr(), outputs[rank.position].mutable_data_ptr(),
        elements->count, elements->dtype, op_for(*elements, reduction), rank.comm, rank.stream);
  };
  const auto ranks = static_cast<int64_t>(devices.size());
  launch("reduce_scatter", Operation{devices, inputs.vec(), outputs.vec(), call,
                                     ranks * (ranks - 1), bytes_of(outputs[0])});
}

void NcclCollectives::all_gather(at::TensorList inputs, at::TensorList outputs) {
  const std::vector<c10::Device> devices = connected_devices(inputs);
  if (devices.empty() || inputs[0].numel() == 0 || !all_plain_alike(inputs) ||
      !all_plain_alike(outputs)) {
    copies_.all_gather(inputs, outputs);
    return;
  }
  const auto call = [&](const NcclApi& nccl, const Rank& rank) {
    const Elements elements = nccl::as_bytes(inputs[0]);
    return nccl.all_gather(inputs[rank.position].const_data_ptr(),
                           outputs[rank.position].mutable_data_ptr(), elements.count,
                           elements.dtype, rank.comm, rank.stream);
  };
  const auto ranks = static_cast<int64_t>(devices.size());
  launch("all_gather", Operation{devices, inputs.vec(), outputs.vec(), call, ranks * (ranks - 1),
                                 bytes_of(inputs[0])});
}

// --- launches and counts -----------------------------------------------------------------------

void NcclCollectives::launch(const char* op, c10::ArrayRef<Operation> operations) {
  const std::vector<c10::Device>& devices = operations[0].devices;
  const auto communicator = nccl::communicator_for(library_, devices, options_);
  nccl::OnCommunicationStreams streams(devices);
  const auto use = [&](const std::vector<at::Tensor>& tensors) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].defined()) {
        streams.use(tensors[i], i);
      }
    }
  };
  for (const Operation& operation : operations) {
    use(operation.sends);
    use(operation.receives);
  }
  communicator->launch(op, [&](const NcclApi& nccl, nccl::CommHandle comm, int number) {
    const auto position = static_cast<size_t>(number);
    const Rank rank = {position, comm, streams.stream(position).native_handle()};
    for (const Operation& operation : operations) {
      const Result result = operation.call(nccl, rank);
      if (result != Result::kSuccess && result != Result::kInProgress) {
        return result;
      }
    }
    return Result::kSuccess;
  });
  streams.finish();
  for (const Operation& operation : operations) {
    for (const at::Tensor& receive : operation.receives) {
      if (receive.defined()) {
        receive.unsafeGetTensorImpl()->bump_version();
      }
    }
    nccl_calls_ += 1;
    messages_ += operation.messages;
    bytes_ += operation.messages * operation.message_bytes;
  }
}

void NcclCollectives::launch_all(const char* op, std::vector<Operation> operations) {
  auto first = operations.begin();
  while (first != operations.end()) {
    const auto last = std::find_if(first, operations.end(), [&](const Operation& operation) {
      return operation.devices != first->devices;
    });
    launch(op, c10::ArrayRef<Operation>(&*first, static_cast<size_t>(last - first)));
    first = last;
  }
}

CollectiveCounters NcclCollectives::counters() const {
  CollectiveCounters counters = copies_.counters();
  counters.calls += nccl_calls_.load();
  counters.messages += messages_.load();
  counters.bytes += bytes_.load();
  return counters;
}

void NcclCollectives::reset_counters() {
  copies_.reset_counters();
  nccl_calls_ = 0;
  messages_ = 0;
  bytes_ = 0;
}

}  // namespace lockstep::comm
