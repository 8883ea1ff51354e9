// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/internal/rank_set.h"

#include <c10/core/DeviceGuard.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "comm/nccl/nccl_errors.h"

// Note [Group levels of a failed init]
// NCCL counts the groups that are open per thread, and 2.28 leaves one open when it refuses to make
// a rank: the next launch of the thread would then sit in a group that nobody ends. The count
// cannot be read. So ranks are made on a thread of their own, which has no other group: there the
// groups can be ended until NCCL says that none is left, and the caller's stay as they were.

namespace lockstep::comm::nccl::internal {
namespace {

constexpr const char* kMake = "NcclCommunicator";

// A call of a rank that is not done yet is not a failure: the ranks are asked later.
bool failed(Result result) { return result != Result::kSuccess && result != Result::kInProgress; }

// The inner levels answer success, and the outermost what became of the group.
void end_all_groups(const NcclApi& nccl) {
  while (nccl.group_end() == Result::kSuccess) {
  }
}

void throw_if_failed(const NcclApi& nccl, const char* op, const char* call, Result result) {
  if (failed(result)) {
    throw nccl_error(nccl, op, call, result);
  }
}

}  // namespace

RankSet::RankSet(const NcclApi& nccl, std::vector<c10::Device> devices,
                 std::chrono::milliseconds timeout)
    : nccl_(nccl),
      devices_(std::move(devices)),
      timeout_(timeout),
      handles_(devices_.size(), nullptr) {}

void RankSet::make() {
  std::exception_ptr failure;
  // See Note [Group levels of a failed init]
  std::thread maker([&] {
    try {
      start_all();
      wait(kMake);
    } catch (...) {
      failure = std::current_exception();
      abort();
    }
  });
  maker.join();
  if (failure != nullptr) {
    std::rethrow_exception(failure);
  }
}

void RankSet::start_all() {
  UniqueId id;
  throw_if_failed(nccl_, kMake, "ncclGetUniqueId", nccl_.get_unique_id(&id));
  throw_if_failed(nccl_, kMake, "ncclGroupStart", nccl_.group_start());
  try {
    c10::OptionalDeviceGuard current;
    for (size_t rank = 0; rank < devices_.size(); ++rank) {
      current.reset_device(devices_[rank]);
      Config config;
      config.blocking = 0;
      const Result result = nccl_.comm_init_rank_config(
          &handles_[rank], static_cast<int>(devices_.size()), id, static_cast<int>(rank), &config);
      if (failed(result)) {
        throw rank_error(kMake, "ncclCommInitRankConfig", result, static_cast<int>(rank));
      }
    }
  } catch (...) {
    // An abort within a group would wait for the group's end.
    end_all_groups(nccl_);
    throw;
  }
  const Result result = nccl_.group_end();
  if (failed(result)) {
    throw group_error(kMake, result);
  }
}

void RankSet::run_group(const char* op, const Call& call) {
  throw_if_failed(nccl_, op, "ncclGroupStart", nccl_.group_start());
  try {
    c10::OptionalDeviceGuard current;
    for (size_t rank = 0; rank < devices_.size(); ++rank) {
      current.reset_device(devices_[rank]);
      const Result result = call(nccl_, handles_[rank], static_cast<int>(rank));
      if (failed(result)) {
        throw rank_error(op, "a call of the group", result, static_cast<int>(rank));
      }
    }
  } catch (...) {
    nccl_.group_end();
    throw;
  }
  const Result result = nccl_.group_end();
  if (failed(result)) {
    throw group_error(op, result);
  }
  wait(op);
}

void RankSet::wait(const char* op) {
  const auto start = std::chrono::steady_clock::now();
  for (int round = 0;; ++round) {
    const std::vector<int> ranks = ranks_in_progress(op);
    if (ranks.empty()) {
      return;
    }
    if (stop_.requested()) {
      throw NcclError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                      std::string("[") + op + "] stopped by an abort from another thread", {});
    }
    const auto waited = std::chrono::steady_clock::now() - start;
    if (std::chrono::duration_cast<std::chrono::milliseconds>(waited) >= timeout_) {
      throw timeout_error(op, ranks);
    }
    stop_.pause(round);
  }
}

// All ranks are asked each time: one that is in progress may wait for one that has failed.
std::vector<int> RankSet::ranks_in_progress(const char* op) const {
  std::vector<int> in_progress;
  std::optional<std::pair<Result, int>> failure;
  for (size_t rank = 0; rank < handles_.size(); ++rank) {
    Result state = Result::kSuccess;
    const Result result = nccl_.comm_get_async_error(handles_[rank], &state);
    const Result worse = failed(result) ? result : state;
    if (worse == Result::kInProgress) {
      in_progress.push_back(static_cast<int>(rank));
    }
    // The rank that failed by itself is more telling than its peers that noticed.
    const bool more_telling =
        !failure || (failure->first == Result::kRemoteError && worse != Result::kRemoteError);
    if (failed(worse) && more_telling) {
      failure.emplace(worse, static_cast<int>(rank));
    }
  }
  if (failure) {
    throw rank_error(op, "a rank", failure->first, failure->second);
  }
  return in_progress;
}

void RankSet::check_health(const char* op) { ranks_in_progress(op); }

void RankSet::finish(const char* op) {
  run_group(op, [](const NcclApi& nccl, CommHandle comm, int /*rank*/) {
    return nccl.comm_finalize(comm);
  });
  std::optional<NcclError> failure;
  for (size_t rank = 0; rank < handles_.size(); ++rank) {
    const Result result = nccl_.comm_destroy(std::exchange(handles_[rank], nullptr));
    if (failed(result) && !failure) {
      failure = rank_error(op, "ncclCommDestroy", result, static_cast<int>(rank));
    }
  }
  if (failure) {
    throw *failure;
  }
}

void RankSet::abort() noexcept {
  for (CommHandle& handle : handles_) {
    if (handle != nullptr) {
      // Whatever it answers: the handle is gone.
      nccl_.comm_abort(std::exchange(handle, nullptr));
    }
  }
}

NcclError RankSet::group_error(const char* op, Result result) const {
  for (size_t rank = 0; rank < handles_.size(); ++rank) {
    Result state = Result::kSuccess;
    if (handles_[rank] != nullptr &&
        nccl_.comm_get_async_error(handles_[rank], &state) == Result::kSuccess && failed(state)) {
      return rank_error(op, "ncclGroupEnd", result, static_cast<int>(rank));
    }
  }
  return nccl_error(nccl_, op, "ncclGroupEnd", result);
}

NcclError RankSet::rank_error(const char* op, const char* call, Result result, int rank) const {
  return nccl_error(nccl_, op, call, result, {rank, devices_[rank], /*recoverable=*/false});
}

TimeoutError RankSet::timeout_error(const char* op, const std::vector<int>& ranks) const {
  std::ostringstream text;
  text << "[" << op << "] NCCL was not done within " << timeout_.count() << " ms for rank";
  const char* separator = ranks.size() == 1 ? " " : "s ";
  for (int rank : ranks) {
    text << separator << rank << " (" << devices_[rank] << ")";
    separator = ", ";
  }
  text << " of " << devices_.size();
  return TimeoutError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text.str(),
                      {ranks.front(), devices_[ranks.front()], /*recoverable=*/false});
}

}  // namespace lockstep::comm::nccl::internal
