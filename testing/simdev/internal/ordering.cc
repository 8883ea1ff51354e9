// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/ordering.h"

#include <c10/util/Exception.h>

#include <optional>
#include <string>
#include <utility>

#include "testing/simdev/internal/arena.h"
#include "testing/simdev/internal/clocks.h"
#include "testing/simdev/internal/counting.h"
#include "testing/simdev/internal/device_heap.h"
#include "testing/simdev/internal/faults.h"
#include "testing/simdev/internal/host_copies.h"
#include "testing/simdev/internal/memory.h"
#include "testing/simdev/internal/messages.h"

namespace lockstep::simdev::internal {
namespace {

// What is wrong with the access, for a message made without the block's lock; else the access is
// noted.
struct Finding {
  enum { kNothing, kRace, kFreed } kind = kNothing;
  std::optional<Access> other;
  size_t block_bytes = 0;
};

Finding examine(Block& block, const Access& access) {
  Finding finding;
  finding.block_bytes = block.asked;
  if (block.state != BlockState::kLive) {
    finding.kind = Finding::kFreed;
    if (block.accesses.last() != nullptr) {
      finding.other = *block.accesses.last();
    }
    return finding;
  }
  const ClockView known(access.stream);
  if (const Access* const conflict = block.accesses.conflict(access, known)) {
    finding.kind = Finding::kRace;
    finding.other = *conflict;
  }
  return finding;
}

std::string message(const Finding& finding, int device, const Access& access) {
  if (finding.kind == Finding::kRace) {
    return race_message(device, finding.block_bytes, *finding.other, access);
  }
  return used_after_free_message(device, finding.block_bytes, access,
                                 finding.other ? &*finding.other : nullptr);
}

}  // namespace

Launch launch(const char* op, int stream) {
  if (!checking_on()) {
    return {op, stream, 0};
  }
  throw_pending();
  return {op, stream, tick(stream)};
}

void touch(const at::Tensor& tensor, bool write, const Launch& launch) {
  if (launch.time == 0 || !tensor.defined() ||
      tensor.device().type() != c10::DeviceType::PrivateUse1 || !tensor.has_storage() ||
      tensor.numel() == 0) {
    return;
  }
  const void* const data = tensor.storage().data();
  const int device = device_of_device_address(data);
  TORCH_CHECK(device >= 0, "[simdev] expected '", launch.op, "' to get memory of a device, got ",
              TensorNote(tensor).str(), " on ", tensor.device(), " at the host address ", data);
  const size_t offset = static_cast<const char*>(data) - device_base(device);
  std::optional<Access> access;
  const Finding finding = heap(device).with_block(offset, [&](Block& block) {
    access.emplace(Access{Footprint(tensor, offset - block.offset), launch.stream, launch.time,
                          write, launch.op, TensorNote(tensor)});
    Finding found = examine(block, *access);
    if (found.kind == Finding::kNothing) {
      block.accesses.add(std::move(*access));
    }
    return found;
  });
  if (finding.kind == Finding::kNothing) {
    return;
  }
  raise(message(finding, device, *access));
  // Collected: the operator goes on, and so does the history.
  heap(device).with_block(offset, [&](Block& block) { block.accesses.add(*access); });
}

void synchronize_host(int stream) {
  count_host_sync(stream_of_number(stream).device_index());
  join_host(snapshot(stream));
  raise_all(settle_host_copies());
}

}  // namespace lockstep::simdev::internal
