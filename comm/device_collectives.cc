// SPDX-License-Identifier: Apache-2.0
#include "comm/device_collectives.h"

#include <memory>

#include "comm/copy_collectives.h"
#include "comm/nccl/nccl_api.h"
#include "comm/nccl_collectives.h"

namespace lockstep::comm {
namespace {

// Null if there is no NCCL to load. Never destroyed: the engine lives until the process ends.
DeviceCollectives* nccl_engine() {
  static DeviceCollectives* const engine = [] {
    const nccl::NcclApi* const library = nccl::find_nccl();
    return library == nullptr ? nullptr : new NcclCollectives(*library);
  }();
  return engine;
}

}  // namespace

void DeviceCollectives::broadcast_grouped(c10::ArrayRef<BroadcastCall> calls) {
  for (const BroadcastCall& call : calls) {
    broadcast(call.source, call.destinations);
  }
}

void DeviceCollectives::reduce_add_grouped(c10::ArrayRef<ReduceAddCall> calls) {
  for (const ReduceAddCall& call : calls) {
    reduce_add(call.inputs, call.destination);
  }
}

DeviceCollectives& default_collectives(c10::DeviceType device_type) {
  if (device_type == c10::DeviceType::CUDA && nccl_engine() != nullptr) {
    return *nccl_engine();
  }
  static CopyCollectives copies;
  return copies;
}

}  // namespace lockstep::comm
