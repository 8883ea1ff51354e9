// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/faults.h"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "testing/simdev/checker.h"

namespace lockstep::simdev::internal {
namespace {

struct Faults {
  std::mutex mutex;
  std::vector<std::string> untaken;
  std::unordered_map<std::thread::id, std::string> pending;
  std::atomic<bool> are_thrown{true};
  std::atomic<uint64_t> generation{1};  // pending faults of an older one are forgotten
};

// Never destroyed: tensors may be freed while the process ends.
Faults& faults() {
  static auto* const all = new Faults();
  return *all;
}

// The generation of this thread's pending fault; 0 for none. Trivial, since the destructors of
// other thread-local objects may free memory.
thread_local uint64_t pending_generation = 0;

void note(const std::string& message) {
  const std::lock_guard<std::mutex> lock(faults().mutex);
  faults().untaken.push_back(message);
}

void throw_unless_collecting(const std::string& message) {
  if (faults().are_thrown) {
    throw RaceError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, message);
  }
}

}  // namespace

void raise(const std::string& message) {
  note(message);
  throw_unless_collecting(message);
}

void raise_all(const std::vector<std::string>& messages) {
  for (const std::string& message : messages) {
    note(message);
  }
  if (!messages.empty()) {
    throw_unless_collecting(messages.front());
  }
}

void raise_later(const std::string& message) {
  const std::lock_guard<std::mutex> lock(faults().mutex);
  faults().untaken.push_back(message);
  if (pending_generation != faults().generation) {
    pending_generation = faults().generation;
    faults().pending[std::this_thread::get_id()] = message;
  }
}

void throw_pending() {
  if (pending_generation == 0) {
    return;
  }
  std::string message;
  {
    const std::lock_guard<std::mutex> lock(faults().mutex);
    if (std::exchange(pending_generation, 0) != faults().generation) {
      return;
    }
    const auto found = faults().pending.find(std::this_thread::get_id());
    message = std::move(found->second);
    faults().pending.erase(found);
  }
  throw_unless_collecting(message);
}

void drop_pending() {
  const std::lock_guard<std::mutex> lock(faults().mutex);
  ++faults().generation;
  faults().pending.clear();
}

std::vector<std::string> take_faults() {
  const std::lock_guard<std::mutex> lock(faults().mutex);
  return std::exchange(faults().untaken, {});
}

void throw_faults(bool on) { faults().are_thrown = on; }

}  // namespace lockstep::simdev::internal
