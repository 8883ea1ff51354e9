// SPDX-License-Identifier: Apache-2.0
// The communicators that communicator_for() has made.

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/nccl/nccl_communicator.h"

namespace lockstep::comm::nccl {
namespace {

using Key = std::pair<const NcclApi*, std::vector<int64_t>>;

Key key_of(const NcclApi& nccl, c10::ArrayRef<c10::Device> devices) {
  Key key{&nccl, {}};
  for (const c10::Device& device : devices) {
    key.second.push_back(static_cast<int64_t>(device.type()) << 32 | (device.index() & 0xff));
  }
  return key;
}

class Cache {
 public:
  std::shared_ptr<NcclCommunicator> get(const NcclApi& nccl, c10::ArrayRef<c10::Device> devices,
                                        const CommunicatorOptions& options) {
    const Key key = key_of(nccl, devices);
    if (std::shared_ptr<NcclCommunicator> made = find(key)) {
      return made;
    }
    // Those that look for one that is there need not wait for one that is made.
    const std::lock_guard<std::mutex> one_at_a_time(making_);
    if (std::shared_ptr<NcclCommunicator> made = find(key)) {
      return made;
    }
    auto made = std::make_shared<NcclCommunicator>(nccl, devices, options);
    const std::lock_guard<std::mutex> lock(mutex_);
    communicators_[key] = made;
    return made;
  }

  void close_all() {
    std::map<Key, std::shared_ptr<NcclCommunicator>> communicators;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      communicators.swap(communicators_);
    }
    std::exception_ptr failure;
    for (const auto& [key, communicator] : communicators) {
      try {
        communicator->close();
      } catch (...) {
        failure = failure == nullptr ? std::current_exception() : failure;
      }
    }
    if (failure != nullptr) {
      std::rethrow_exception(failure);
    }
  }

 private:
  std::shared_ptr<NcclCommunicator> find(const Key& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = communicators_.find(key);
    const bool usable = found != communicators_.end() && found->second->is_open();
    return usable ? found->second : nullptr;
  }

  std::mutex making_;
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<NcclCommunicator>> communicators_;
};

Cache& cache() {
  // Never destroyed: at exit the driver may be gone, and devices may wait for peers that are gone.
  static auto* const cache = new Cache();
  return *cache;
}

}  // namespace

std::shared_ptr<NcclCommunicator> communicator_for(const NcclApi& nccl,
                                                   c10::ArrayRef<c10::Device> devices,
                                                   const CommunicatorOptions& options) {
  return cache().get(nccl, devices, options);
}

void close_communicators() { cache().close_all(); }

}  // namespace lockstep::comm::nccl
