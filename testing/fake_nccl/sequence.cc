// SPDX-License-Identifier: Apache-2.0
#include "testing/fake_nccl/sequence.h"

#include <algorithm>
#include <string>
#include <utility>

#include "testing/fake_nccl/crossing.h"
#include "testing/fake_nccl/execute.h"
#include "testing/fake_nccl/library.h"
#include "testing/fake_nccl/reports.h"

namespace lockstep::fake_nccl::internal {
namespace {

std::string place(const Communicator& comm, long long operation) {
  return describe(comm) + ", operation " + std::to_string(operation);
}

bool agree(const Call& a, const Call& b) {
  // Scalars may differ from rank to rank.
  const bool ops_agree =
      !reduces(a.kind) || (a.scalar || b.scalar ? a.scalar && b.scalar : a.op == b.op);
  return a.kind == b.kind && a.count == b.count && a.dtype == b.dtype && ops_agree &&
         a.root == b.root;
}

// How the rank's calls differ from those of another, or nothing.
std::string difference(const Communicator& comm, const std::vector<Call>& calls,
                       const Communicator& other, const std::vector<Call>& others) {
  const long long first = comm.clique->operations_done;
  const size_t both = std::min(calls.size(), others.size());
  for (size_t i = 0; i < both; ++i) {
    if (!agree(calls[i], others[i])) {
      return place(comm, first + static_cast<long long>(i)) + ": expected " + describe(others[i]) +
             ", as rank " + std::to_string(other.rank) + " called, got " + describe(calls[i]);
    }
  }
  if (calls.size() != others.size()) {
    return place(comm, first) + ": expected " + std::to_string(others.size()) +
           " operations in one group, as rank " + std::to_string(other.rank) + " called, got " +
           std::to_string(calls.size());
  }
  return "";
}

// A rank of the clique that will never call again, or null.
const Communicator* lost_member(const Clique& clique, State state) {
  for (const Communicator* const member : clique.members) {
    if (member != nullptr && member->state == state) {
      return member;
    }
  }
  return nullptr;
}

void check_thread(const Communicator& comm, const Submission& submission) {
  for (int rank = 0; rank < comm.clique->ranks; ++rank) {
    const auto& other = comm.clique->round[rank];
    if (other && other->submission.get() != &submission &&
        other->submission->thread == submission.thread) {
      report(place(comm, comm.clique->operations_done) + ": one thread calls for ranks " +
             std::to_string(rank) + " and " + std::to_string(comm.rank) +
             " outside of one group: the first call may wait for the second for ever");
      return;
    }
  }
}

void run_round(Clique* clique) {
  const Result result = execute(*clique);
  if (result != Result::kSuccess) {
    break_clique(clique, result);
    return;
  }
  note_done(*clique);
  clique->operations_done += static_cast<long long>(clique->round[0]->calls.size());
  clique->round.assign(clique->ranks, std::nullopt);
  for (Communicator* const member : clique->members) {
    member->pending = nullptr;
  }
  library().changed.notify_all();
}

// "rank 1 (device 1) has called nothing"
std::string standing(const Clique& clique, int rank) {
  const Communicator* const member = clique.members[rank];
  const std::string who = "rank " + std::to_string(rank);
  if (member == nullptr) {
    return who + " has not called init";
  }
  const std::string where = who + " (device " + std::to_string(member->device) + ")";
  if (clique.initialised < clique.ranks) {
    return where + " waits in init";
  }
  if (!clique.round[rank]) {
    return where + " has called nothing since operation " +
           std::to_string(clique.operations_done - 1);
  }
  return where + " waits in operation " + std::to_string(clique.operations_done) + ", " +
         describe(clique.round[rank]->calls[0]);
}

}  // namespace

void arrive(Submission::Batch* batch, const std::shared_ptr<Submission>& submission) {
  Communicator* const comm = batch->comm;
  Clique* const clique = comm->clique.get();
  if (comm->error != Result::kSuccess) {
    return;
  }
  if (comm->calls_are_dropped) {
    clique->is_injected = true;
    return;
  }
  if (const Communicator* const gone = lost_member(*clique, State::kDestroyed)) {
    refuse(Result::kInvalidUsage, place(*comm, clique->operations_done) + ": " +
                                      describe(batch->calls[0]) + " waits for rank " +
                                      std::to_string(gone->rank) + ", which was destroyed");
    break_clique(clique, Result::kInvalidUsage);
    return;
  }
  if (const Communicator* const gone = lost_member(*clique, State::kAborted)) {
    fail(Result::kRemoteError, describe(*gone) + " was aborted");
    break_clique(clique, Result::kRemoteError);
    return;
  }
  check_thread(*comm, *submission);
  const std::string crossed = note_call(*comm, *submission);
  if (!crossed.empty()) {
    report(crossed);
  }
  const auto first = std::find_if(clique->round.begin(), clique->round.end(),
                                  [](const auto& arrival) { return arrival.has_value(); });
  if (first != clique->round.end()) {
    const Communicator& other = *clique->members[first - clique->round.begin()];
    const std::string differs = difference(*comm, batch->calls, other, (*first)->calls);
    if (!differs.empty()) {
      refuse(Result::kInvalidUsage, differs);
      break_clique(clique, Result::kInvalidUsage);
      return;
    }
  }
  library().counters.calls += static_cast<long long>(batch->calls.size());
  clique->round[comm->rank] = Arrival{submission, std::move(batch->calls)};
  const bool all_have_come = std::all_of(clique->round.begin(), clique->round.end(),
                                         [](const auto& arrival) { return arrival.has_value(); });
  if (all_have_come) {
    run_round(clique);
  }
}

void give_up(const Submission& submission) {
  for (Communicator* const comm : submission.communicators()) {
    if (state_of(*comm) != Result::kInProgress) {
      continue;
    }
    Clique* const clique = comm->clique.get();
    std::string text = "deadlock in communicator " + std::to_string(clique->number) + " after " +
                       std::to_string(library().deadline.count()) + " ms: ";
    for (int rank = 0; rank < clique->ranks; ++rank) {
      text += (rank > 0 ? "; " : "") + standing(*clique, rank);
    }
    text += ". A thread that calls for several ranks has to put their calls into one group";
    fail(Result::kInternalError, text);
    if (!clique->is_injected) {
      report(text);
    }
    break_clique(clique, Result::kInternalError);
  }
}

}  // namespace lockstep::fake_nccl::internal
