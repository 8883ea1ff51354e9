// SPDX-License-Identifier: Apache-2.0
// clocks.h: a vector clock per stream, and one that all host threads share.
// A stream's clock says how far each stream is known to have come by all that this one will be
// given. Threads: safe.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace lockstep::simdev::internal {

class Clock {
 public:
  uint64_t at(int stream) const {
    return static_cast<size_t>(stream) < ticks_.size() ? ticks_[stream] : 0;
  }
  void join(const Clock& other);
  uint64_t advance(int stream);

 private:
  std::vector<uint64_t> ticks_;  // by stream number; absent means 0
};

// Streams are numbered in the order of their first use.
int number_of_stream(int device, int64_t id);
c10::Stream stream_of_number(int number);
std::vector<int> streams_of_device(int device);
std::string stream_name(int number);  // "stream 2 of simdev:1"

// Joins the host's clock into the stream's and moves it on by one; the time of what runs next.
uint64_t tick(int stream);
uint64_t time_of_stream(int stream);
// What is known to all that the stream will be given, the host's knowledge included.
Clock snapshot(int stream);
void join_stream(int stream, const Clock& clock);
void join_host(const Clock& clock);
bool host_knows(int stream, uint64_t time);

// A look at what a stream knows; others wait meanwhile.
class ClockView {
 public:
  explicit ClockView(int stream);
  bool knows(int stream, uint64_t time) const {
    return stream == stream_ || own_.at(stream) >= time || host_.at(stream) >= time;
  }

 private:
  std::lock_guard<std::mutex> lock_;
  const int stream_;
  const Clock& own_;
  const Clock& host_;
};

}  // namespace lockstep::simdev::internal
