// SPDX-License-Identifier: Apache-2.0
// communicator.h: the ranks of one unique id, and the handles that stand for them.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "testing/fake_nccl/call.h"

namespace lockstep::fake_nccl::internal {

struct Submission;

// A rank's calls of one group, brought to its peers.
struct Arrival {
  std::shared_ptr<const Submission> submission;
  std::vector<Call> calls;
};

struct Communicator;

// The ranks of one unique id.
struct Clique {
  int number = 0;                      // for messages
  int ranks = 0;                       // 0 until the first rank is known
  std::vector<Communicator*> members;  // by rank; null until its init is called
  int initialised = 0;

  // By rank: the calls that wait for those of other ranks. No rank is ever two rounds ahead, since
  // a communicator is in progress until its peers have come.
  std::vector<std::optional<Arrival>> round;
  long long operations_done = 0;
  bool is_injected = false;  // a fault was asked for, so that nobody has to be told of a deadlock
};

enum class State { kOpen, kFinalized, kDestroyed, kAborted };

struct Communicator {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  int device = 0;
  bool is_blocking = true;
  std::string name;
  State state = State::kOpen;
  bool is_initialised = false;
  Result error = Result::kSuccess;  // stays
  std::shared_ptr<Submission> pending;
  long long operations_called = 0;
  bool init_is_dropped = false;    // injected
  bool calls_are_dropped = false;  // injected
};

// What one group, or one call outside of groups, asks for. It is carried out when NCCL has
// answered often enough that it is in progress.
struct Submission {
  long long number;        // in the order of their making, from 1
  bool is_closed = false;  // the group has ended
  bool has_arrived = false;
  int polls_left = 0;
  std::thread::id thread;
  std::chrono::steady_clock::time_point arrived_at;
  std::vector<Communicator*> inits;
  std::vector<Communicator*> finalizes;
  struct Batch {
    Communicator* comm;
    std::vector<Call> calls;
  };
  std::vector<Batch> batches;

  std::vector<Communicator*> communicators() const;
};

CommHandle handle_of(Communicator* comm);

// Null, and the reason, if no such communicator was ever made.
Communicator* find(CommHandle handle);

Communicator* make_communicator(std::shared_ptr<Clique> clique, int rank, int device);

// Of all that were neither destroyed nor aborted.
std::vector<Communicator*> live_communicators();

UniqueId new_unique_id();
// Null if new_unique_id() did not make it.
std::shared_ptr<Clique> clique_of(const UniqueId& id);
std::shared_ptr<Clique> new_clique();

// "rank 1 (device 3) of communicator 2"
std::string describe(const Communicator& comm);

// kSuccess, kInProgress or what went wrong.
Result state_of(const Communicator& comm);

// The error stays with the rank, and nobody waits for it any longer.
void break_rank(Communicator* comm, Result error);
// The same for all ranks that have none yet.
void break_clique(Clique* clique, Result error);

}  // namespace lockstep::fake_nccl::internal
