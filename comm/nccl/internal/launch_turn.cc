// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/internal/launch_turn.h"

#include <c10/util/Exception.h>

#include <mutex>

namespace lockstep::comm::nccl::internal {
namespace {

std::mutex& turn() {
  // Never destroyed: a thread may still launch while the process ends.
  static auto* const mutex = new std::mutex();
  return *mutex;
}

thread_local bool has_turn = false;

}  // namespace

LaunchTurn::LaunchTurn(const char* op) {
  TORCH_CHECK(!has_turn, "[", op,
              "] expected to be called outside of a launch, got a call from within one");
  turn().lock();
  has_turn = true;
}

LaunchTurn::~LaunchTurn() {
  has_turn = false;
  turn().unlock();
}

}  // namespace lockstep::comm::nccl::internal
