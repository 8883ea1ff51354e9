// SPDX-License-Identifier: Apache-2.0
#include "testing/fake_nccl/crossing.h"

#include <algorithm>
#include <deque>
#include <map>

namespace lockstep::fake_nccl::internal {
namespace {

struct Round {
  int communicator;
  long long operation;
  bool is_done = false;
  std::map<int, long long> groups;  // that called it, by device
};

std::deque<Round>& all_rounds() {
  static auto* const all = new std::deque<Round>();
  return *all;
}

std::string name(const Round& round) {
  return "operation " + std::to_string(round.operation) + " of communicator " +
         std::to_string(round.communicator);
}

// Some device on which `a` is called before `b`, or -1.
int device_with_order(const Round& a, const Round& b) {
  for (const auto& [device, group] : a.groups) {
    const auto other = b.groups.find(device);
    if (other != b.groups.end() && group < other->second) {
      return device;
    }
  }
  return -1;
}

std::string crossing(const Round& a, const Round& b) {
  const int a_first = device_with_order(a, b), b_first = device_with_order(b, a);
  if (a_first < 0 || b_first < 0) {
    return "";
  }
  return name(a) + " is called before " + name(b) + " on device " + std::to_string(a_first) +
         ", and after it on device " + std::to_string(b_first) +
         ": each device may wait for the other for ever";
}

// What is done matters only to what was called before it was done.
void forget_old() {
  auto& rounds = all_rounds();
  const bool all_done =
      std::all_of(rounds.begin(), rounds.end(), [](const Round& round) { return round.is_done; });
  if (all_done) {
    rounds.clear();
  }
}

}  // namespace

std::string note_call(const Communicator& comm, const Submission& group) {
  const int communicator = comm.clique->number;
  const long long operation = comm.clique->operations_done;
  auto& rounds = all_rounds();
  auto own = std::find_if(rounds.begin(), rounds.end(), [&](const Round& round) {
    return round.communicator == communicator && round.operation == operation;
  });
  if (own == rounds.end()) {
    rounds.push_back({communicator, operation, false, {}});
    own = std::prev(rounds.end());
  }
  own->groups[comm.device] = group.number;
  for (const Round& other : rounds) {
    const std::string found = other.communicator == communicator ? "" : crossing(*own, other);
    if (!found.empty()) {
      return found;
    }
  }
  return "";
}

void note_done(const Clique& clique) {
  for (Round& round : all_rounds()) {
    if (round.communicator == clique.number && round.operation == clique.operations_done) {
      round.is_done = true;
    }
  }
  forget_old();
}

void forget_crossings(const Clique& clique) {
  auto& rounds = all_rounds();
  rounds.erase(
      std::remove_if(rounds.begin(), rounds.end(),
                     [&](const Round& round) { return round.communicator == clique.number; }),
      rounds.end());
  forget_old();
}

}  // namespace lockstep::fake_nccl::internal
