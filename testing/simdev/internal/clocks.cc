// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/clocks.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "testing/simdev/internal/ordering.h"

namespace lockstep::simdev::internal {
namespace {

struct StreamState {
  int device;
  int64_t id;
  Clock clock;
  uint64_t host_version = 0;  // of the host's clock when it was joined last
};

struct Clocks {
  std::mutex mutex;
  std::deque<StreamState> streams;
  std::map<std::pair<int, int64_t>, int> numbers;
  Clock host;
  uint64_t host_version = 0;
};

// Never destroyed: tensors may be freed while the process ends.
Clocks& clocks() {
  static auto* const all = new Clocks();
  return *all;
}

// Needs the lock.
StreamState& with_host_knowledge(int stream) {
  Clocks& all = clocks();
  StreamState& state = all.streams[stream];
  if (state.host_version != all.host_version) {
    state.clock.join(all.host);
    state.host_version = all.host_version;
  }
  return state;
}

c10::Stream as_stream(const StreamState& state) {
  return c10::Stream(
      c10::Stream::UNSAFE,
      c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(state.device)),
      state.id);
}

}  // namespace

void Clock::join(const Clock& other) {
  if (ticks_.size() < other.ticks_.size()) {
    ticks_.resize(other.ticks_.size());
  }
  for (size_t i = 0; i < other.ticks_.size(); ++i) {
    ticks_[i] = std::max(ticks_[i], other.ticks_[i]);
  }
}

uint64_t Clock::advance(int stream) {
  if (ticks_.size() <= static_cast<size_t>(stream)) {
    ticks_.resize(stream + 1);
  }
  return ++ticks_[stream];
}

int number_of_stream(int device, int64_t id) {
  Clocks& all = clocks();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto [found, is_new] =
      all.numbers.try_emplace({device, id}, static_cast<int>(all.streams.size()));
  if (is_new) {
    all.streams.push_back({device, id, Clock(), 0});
  }
  return found->second;
}

int stream_number(const c10::Stream& stream) {
  return number_of_stream(stream.device_index(), stream.id());
}

c10::Stream stream_of_number(int number) {
  Clocks& all = clocks();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return as_stream(all.streams[number]);
}

std::vector<int> streams_of_device(int device) {
  Clocks& all = clocks();
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::vector<int> numbers;
  for (size_t i = 0; i < all.streams.size(); ++i) {
    if (all.streams[i].device == device) {
      numbers.push_back(static_cast<int>(i));
    }
  }
  return numbers;
}

std::string stream_name(int number) {
  const c10::Stream stream = stream_of_number(number);
  return "stream " + std::to_string(stream.id()) +
         " of simdev:" + std::to_string(stream.device_index());
}

uint64_t tick(int stream) {
  const std::lock_guard<std::mutex> lock(clocks().mutex);
  return with_host_knowledge(stream).clock.advance(stream);
}

uint64_t time_of_stream(int stream) {
  const std::lock_guard<std::mutex> lock(clocks().mutex);
  return clocks().streams[stream].clock.at(stream);
}

Clock snapshot(int stream) {
  const std::lock_guard<std::mutex> lock(clocks().mutex);
  return with_host_knowledge(stream).clock;
}

void join_stream(int stream, const Clock& clock) {
  const std::lock_guard<std::mutex> lock(clocks().mutex);
  clocks().streams[stream].clock.join(clock);
}

void order_streams(int from, int to) {
  const std::lock_guard<std::mutex> lock(clocks().mutex);
  const Clock& before = with_host_knowledge(from).clock;
  clocks().streams[to].clock.join(before);
}

void join_host(const Clock& clock) {
  Clocks& all = clocks();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.host.join(clock);
  ++all.host_version;
}

bool host_knows(int stream, uint64_t time) {
  const std::lock_guard<std::mutex> lock(clocks().mutex);
  return clocks().host.at(stream) >= time;
}

ClockView::ClockView(int stream)
    : lock_(clocks().mutex),
      stream_(stream),
      own_(clocks().streams[stream].clock),
      host_(clocks().host) {}

}  // namespace lockstep::simdev::internal
