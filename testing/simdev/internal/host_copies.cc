// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/host_copies.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <list>
#include <mutex>
#include <utility>

#include "testing/simdev/internal/clocks.h"
#include "testing/simdev/internal/faults.h"
#include "testing/simdev/internal/messages.h"
#include "testing/simdev/internal/ordering.h"

namespace lockstep::simdev::internal {
namespace {

struct HostCopy {
  at::Tensor host;      // the pinned tensor
  at::Tensor snapshot;  // what it will take; undefined for a source that is watched
  uint64_t checksum;    // of a watched source
  Launch launch;
};

struct HostCopies {
  std::mutex mutex;             // held while copies arrive: whoever waits finds them done
  std::list<HostCopy> waiting;  // in the order of their launches
};

// Never destroyed: streams may be synchronised while the process ends.
HostCopies& copies() {
  static auto* const all = new HostCopies();
  return *all;
}

uint64_t mix(uint64_t sum, uint64_t word) {
  sum = (sum ^ word) * 0x9E3779B97F4A7C15u;
  return sum ^ (sum >> 29);
}

uint64_t checksum_of(const at::Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView raw;
  const at::Tensor dense = tensor.contiguous();
  const auto* bytes = static_cast<const char*>(dense.const_data_ptr());
  const size_t size = dense.nbytes();
  uint64_t sum = size;
  size_t i = 0;
  for (; i + sizeof(uint64_t) <= size; i += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, bytes + i, sizeof(word));
    sum = mix(sum, word);
  }
  for (; i < size; ++i) {
    sum = mix(sum, static_cast<unsigned char>(bytes[i]));
  }
  return sum;
}

void finish(const HostCopy& copy, std::vector<std::string>* faults) {
  if (copy.snapshot.defined()) {
    // The copy that was launched has bumped the version counter.
    const at::AutoDispatchBelowADInplaceOrView raw;
    copy.host.copy_(copy.snapshot);
  } else if (checksum_of(copy.host) != copy.checksum) {
    faults->push_back(
        pinned_source_message(copy.launch.op, copy.launch.stream, TensorNote(copy.host)));
  }
}

// The host memory that the elements lie in.
std::pair<const char*, const char*> extent_of(const at::Tensor& tensor) {
  const Footprint bytes(tensor, 0);
  const auto* storage = static_cast<const char*>(tensor.storage().data());
  return {storage + bytes.begin(), storage + bytes.end()};
}

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  const auto [a_begin, a_end] = extent_of(a);
  const auto [b_begin, b_end] = extent_of(b);
  return a_begin < b_end && b_begin < a_end;
}

}  // namespace

void copy_late(at::Tensor destination, at::Tensor snapshot, const Launch& launch) {
  HostCopies& all = copies();
  const std::lock_guard<std::mutex> lock(all.mutex);
  HostCopy copy{std::move(destination), std::move(snapshot), 0, launch};
  if (launch.time == 0) {
    std::vector<std::string> no_faults;
    finish(copy, &no_faults);
    return;
  }
  all.waiting.push_back(std::move(copy));
}

void watch_pinned_source(at::Tensor source, const Launch& launch) {
  if (launch.time == 0) {
    return;
  }
  const uint64_t checksum = checksum_of(source);
  const std::lock_guard<std::mutex> lock(copies().mutex);
  copies().waiting.push_back({std::move(source), at::Tensor(), checksum, launch});
}

std::vector<std::string> settle_host_copies() {
  HostCopies& all = copies();
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::vector<std::string> faults;
  for (auto copy = all.waiting.begin(); copy != all.waiting.end();) {
    if (host_knows(copy->launch.stream, copy->launch.time)) {
      finish(*copy, &faults);
      copy = all.waiting.erase(copy);
    } else {
      ++copy;
    }
  }
  return faults;
}

void flush_late_copies_into(const at::Tensor& host_tensor) {
  if (host_tensor.numel() == 0) {
    return;
  }
  HostCopies& all = copies();
  std::vector<std::string> faults;
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto is_last =
        std::find_if(all.waiting.rbegin(), all.waiting.rend(), [&](const HostCopy& copy) {
          return copy.snapshot.defined() && overlap(copy.host, host_tensor);
        });
    const auto* const storage = host_tensor.storage().unsafeGetStorageImpl();
    for (auto copy = all.waiting.begin(); copy != is_last.base();) {
      // Sources are looked at before a copy into the same storage writes them.
      const bool is_source =
          !copy->snapshot.defined() && copy->host.storage().unsafeGetStorageImpl() == storage;
      if (is_source || overlap(copy->host, host_tensor)) {
        finish(*copy, &faults);
        copy = all.waiting.erase(copy);
      } else {
        ++copy;
      }
    }
  }
  raise_all(faults);
}

}  // namespace lockstep::simdev::internal
