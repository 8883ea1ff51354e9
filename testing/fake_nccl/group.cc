// SPDX-License-Identifier: Apache-2.0
#include "testing/fake_nccl/group.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "testing/fake_nccl/init.h"
#include "testing/fake_nccl/reports.h"
#include "testing/fake_nccl/rules.h"
#include "testing/fake_nccl/sequence.h"

namespace lockstep::fake_nccl::internal {
namespace {

struct Group {
  int depth = 0;
  bool stray_end_is_expected = false;
  Result error = Result::kSuccess;
  std::shared_ptr<Submission> calls;  // null until there are some
};

thread_local Group this_threads_group;

Submission& calls_of_group() {
  Group& group = this_threads_group;
  if (!group.calls) {
    static long long made = 0;
    group.calls = std::make_shared<Submission>();
    group.calls->number = ++made;
    group.calls->thread = std::this_thread::get_id();
  }
  return *group.calls;
}

Result note_error(Result error) {
  Result& first = this_threads_group.error;
  if (first == Result::kSuccess) {
    first = error;
  }
  return error;
}

Result check_mode(const Communicator& comm) {
  for (const Communicator* const other : calls_of_group().communicators()) {
    if (other->is_blocking != comm.is_blocking) {
      return refuse(Result::kInvalidArgument, "one group holds calls of " + describe(*other) +
                                                  " and of " + describe(comm) +
                                                  ", of which one is blocking and one is not");
    }
  }
  return Result::kSuccess;
}

// The calls of a group that failed are lost.
void drop(const Submission& calls, Result error) {
  for (Communicator* const comm : calls.communicators()) {
    const bool is_new = !comm->is_initialised;
    if (is_new || !comm->is_blocking) {
      break_rank(comm, error);
    }
  }
}

void carry_out(const std::shared_ptr<Submission>& calls) {
  calls->has_arrived = true;
  calls->arrived_at = std::chrono::steady_clock::now();
  for (Communicator* const comm : calls->inits) {
    arrive_in_init(comm);
  }
  for (Communicator* const comm : calls->finalizes) {
    comm->pending = nullptr;
  }
  for (Submission::Batch& batch : calls->batches) {
    arrive(&batch, calls);
  }
}

void advance(const std::shared_ptr<Submission>& calls) {
  if (!calls->is_closed || calls->has_arrived) {
    return;
  }
  if (calls->polls_left > 0) {
    --calls->polls_left;
    return;
  }
  carry_out(calls);
}

Result state_of_all(const Submission& calls) {
  Result state = Result::kSuccess;
  for (const Communicator* const comm : calls.communicators()) {
    const Result own = state_of(*comm);
    if (own != Result::kSuccess && own != Result::kInProgress) {
      return own;
    }
    state = own == Result::kInProgress ? own : state;
  }
  return state;
}

Result submit(const std::shared_ptr<Submission>& calls, Lock& lock) {
  if (!calls->inits.empty() && !calls->batches.empty()) {
    const Result refused =
        refuse(Result::kInvalidUsage, "one group holds the init of " + describe(*calls->inits[0]) +
                                          " and " + describe(calls->batches[0].calls[0]) + " of " +
                                          describe(*calls->batches[0].comm));
    drop(*calls, refused);
    return refused;
  }
  check_overlaps_in_group(*calls);
  const bool is_blocking = calls->communicators()[0]->is_blocking;
  for (Communicator* const comm : calls->communicators()) {
    comm->pending = calls;
  }
  calls->is_closed = true;
  calls->polls_left = is_blocking ? 0 : library().polls;
  advance(calls);
  if (is_blocking) {
    const auto until = calls->arrived_at + library().deadline;
    const bool is_done = library().changed.wait_until(
        lock, until, [&] { return state_of_all(*calls) != Result::kInProgress; });
    if (!is_done) {
      give_up(*calls);
    }
  }
  return state_of_all(*calls);
}

Result end_level(Lock& lock, bool is_callers) {
  Group& group = this_threads_group;
  if (--group.depth > 0) {
    return Result::kSuccess;
  }
  const std::shared_ptr<Submission> calls = std::exchange(group.calls, nullptr);
  const Result error = std::exchange(group.error, Result::kSuccess);
  if (!calls) {
    return error;
  }
  if (error != Result::kSuccess) {
    drop(*calls, error);
    return error;
  }
  if (is_callers && !calls->batches.empty()) {
    ++library().counters.groups;
  }
  return submit(calls, lock);
}

}  // namespace

int group_depth() { return this_threads_group.depth; }

void group_start() {
  ++this_threads_group.depth;
  this_threads_group.stray_end_is_expected = false;
}

Result group_end(Lock& lock) {
  Group& group = this_threads_group;
  if (group.depth == 0) {
    const char* const text = "group_end: expected a group_start of this thread before it";
    return std::exchange(group.stray_end_is_expected, false) ? fail(Result::kInvalidUsage, text)
                                                             : refuse(Result::kInvalidUsage, text);
  }
  return end_level(lock, /*is_callers=*/true);
}

CallGroup::CallGroup() { ++this_threads_group.depth; }

Result CallGroup::end(Result result, Lock& lock) {
  if (result != Result::kSuccess) {
    note_error(result);
  }
  const Result ended = end_level(lock, /*is_callers=*/false);
  return result == Result::kSuccess ? ended : result;
}

Result add_init(Communicator* comm) {
  const Result fits = check_mode(*comm);
  if (fits == Result::kSuccess) {
    Submission& calls = calls_of_group();
    calls.inits.push_back(comm);
    comm->pending = this_threads_group.calls;
  }
  return fits;
}

Result add_call(Communicator* comm, const Call& call) {
  const Result fits = check_mode(*comm);
  if (fits != Result::kSuccess) {
    return fits;
  }
  auto& batches = calls_of_group().batches;
  const auto own = std::find_if(batches.begin(), batches.end(),
                                [&](const auto& batch) { return batch.comm == comm; });
  if (own != batches.end()) {
    own->calls.push_back(call);
  } else {
    batches.push_back({comm, {call}});
  }
  return Result::kSuccess;
}

Result add_finalize(Communicator* comm) {
  const Result fits = check_mode(*comm);
  if (fits == Result::kSuccess) {
    calls_of_group().finalizes.push_back(comm);
  }
  return fits;
}

bool drop_calls(const Communicator& comm) {
  if (!this_threads_group.calls) {
    return false;
  }
  Submission& calls = *this_threads_group.calls;
  const size_t before = calls.communicators().size();
  const auto drop_from = [](auto* all, const auto& is_its) {
    all->erase(std::remove_if(all->begin(), all->end(), is_its), all->end());
  };
  drop_from(&calls.inits, [&](const Communicator* other) { return other == &comm; });
  drop_from(&calls.finalizes, [&](const Communicator* other) { return other == &comm; });
  drop_from(&calls.batches, [&](const auto& batch) { return batch.comm == &comm; });
  if (calls.communicators().empty()) {
    this_threads_group.calls = nullptr;
    return before > 0;
  }
  return before != calls.communicators().size();
}

void leak_level() { ++this_threads_group.depth; }

void expect_stray_end() { this_threads_group.stray_end_is_expected = true; }

Result poll(Communicator* comm) {
  const std::shared_ptr<Submission> calls = comm->pending;
  if (calls) {
    advance(calls);
    const bool is_late = calls->has_arrived && state_of(*comm) == Result::kInProgress &&
                         std::chrono::steady_clock::now() - calls->arrived_at > library().deadline;
    if (is_late && !comm->clique->is_injected) {
      give_up(*calls);
    }
  }
  return state_of(*comm);
}

}  // namespace lockstep::fake_nccl::internal
