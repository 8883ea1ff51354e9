// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/messages.h"

#include <c10/util/StringUtil.h>

namespace lockstep::simdev::internal {
namespace {

std::string device_name(int device) { return c10::str("simdev:", device); }

std::string range(const Footprint& bytes) {
  return c10::str("bytes [", bytes.begin(), ", ", bytes.end(), ")");
}

// "'aten::add_' on stream 2 of simdev:1"
std::string who(const Access& access) {
  const std::string stream = stream_name(access.stream);
  return access.op == nullptr ? "its allocation on " + stream
                              : c10::str("'", access.op, "' on ", stream);
}

// "writes Float[3, 4], bytes [0, 48)"
std::string what(const char* verb, const Access& access) {
  return c10::str(verb, " ", access.tensor.str(), ", ", range(access.bytes));
}

std::string last_use(const Access* last) {
  return last == nullptr || last->op == nullptr ? std::string()
                                                : "; its last known user was " + who(*last);
}

}  // namespace

std::string race_message(int device, size_t block_bytes, const Access& before, const Access& next) {
  const std::string place =
      c10::str("[simdev] race on a block of ", block_bytes, " bytes of ", device_name(device), ": ",
               who(next), " ", what(next.write ? "writes" : "reads", next),
               ", and nothing orders it after ", who(before));
  if (before.op == nullptr) {
    return c10::str(place, ": the memory may have been in use there before; let ",
                    stream_name(next.stream), " wait for an event recorded after the allocation");
  }
  return c10::str(place, ", which ", what(before.write ? "wrote" : "read", before),
                  "; record an "
                  "event on ",
                  stream_name(before.stream), " after it and let ", stream_name(next.stream),
                  " wait for the event");
}

std::string reuse_message(int device, size_t block_bytes, int stream, const Access& use) {
  return c10::str("[simdev] freed memory is in use: a block of ", block_bytes, " bytes of ",
                  device_name(device), " was freed and may be given out again on ",
                  stream_name(stream), ", while ", who(use), " ",
                  what(use.write ? "writes" : "reads", use), ", and nothing orders ",
                  stream_name(stream),
                  " after it; call record_stream before the tensor is freed, "
                  "or wait for ",
                  stream_name(use.stream));
}

std::string written_after_free_message(int device, size_t block_bytes, size_t byte,
                                       const Access* last) {
  return c10::str("[simdev] memory was written after it was freed: byte ", byte, " of a block of ",
                  block_bytes, " bytes of ", device_name(device), last_use(last));
}

std::string used_after_free_message(int device, size_t block_bytes, const Access& use,
                                    const Access* last) {
  return c10::str("[simdev] memory is used after it was freed: ", who(use), " ",
                  what(use.write ? "writes" : "reads", use), " of a block of ", block_bytes,
                  " bytes of ", device_name(device), " that is free", last_use(last));
}

std::string pinned_source_message(const char* op, int stream, const TensorNote& source) {
  return c10::str("[simdev] the pinned source of a non-blocking copy changed too early: '", op,
                  "' on ", stream_name(stream), " reads ", source.str(),
                  " of host memory, which was written before the host waited for the copy");
}

}  // namespace lockstep::simdev::internal
