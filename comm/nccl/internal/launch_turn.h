// SPDX-License-Identifier: Apache-2.0
// launch_turn: one order for all groups that this process gives to NCCL.
#pragma once

namespace lockstep::comm::nccl::internal {

// The right to give NCCL a group, of which there is one in the process. Two threads that gave the
// ranks of two groups in turns could make each rank wait for another's group, for ever; so a thread
// holds the turn until NCCL has enqueued its whole group, whatever the communicator.
class LaunchTurn {
 public:
  // Waits for it.
  // Throws: c10::Error if this thread holds it already: it would wait for itself.
  explicit LaunchTurn(const char* op);
  ~LaunchTurn();
  LaunchTurn(const LaunchTurn&) = delete;
  LaunchTurn& operator=(const LaunchTurn&) = delete;
};

}  // namespace lockstep::comm::nccl::internal
