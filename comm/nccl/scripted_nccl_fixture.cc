// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/scripted_nccl_fixture.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <memory>
#include <mutex>
#include <set>

namespace lockstep::comm::nccl {
namespace {

struct Rank {
  int rank;
  bool alive = true;
  bool finalized = false;
  int polls = 0;  // answers left that say "in progress"
};

struct World {
  std::mutex mutex;
  NcclScript script;
  std::vector<std::string> log;
  std::vector<std::unique_ptr<Rank>> ranks;
};

World& world() {
  static auto* const world = new World();
  return *world;
}

thread_local int group_depth = 0;
thread_local std::set<Rank*> group_members;

Rank* rank_of(CommHandle comm) { return reinterpret_cast<Rank*>(comm); }

Result from(const std::map<int, Result>& answers, int rank, Result otherwise = Result::kSuccess) {
  const auto found = answers.find(rank);
  return found == answers.end() ? otherwise : found->second;
}

std::string current_device() {
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::PrivateUse1);
  return std::to_string(static_cast<int>(guard.getDevice().index()));
}

void require(World& world, bool condition, const std::string& rule) {
  if (!condition) {
    world.log.push_back("wrong: " + rule);
  }
}

// Notes a call on a rank, which a group must hold.
Result member_call(const std::string& name, CommHandle comm, bool with_device) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mutex);
  Rank* const rank = rank_of(comm);
  w.log.push_back(name + " " + std::to_string(rank->rank) +
                  (with_device ? " on " + current_device() : ""));
  require(w, rank->alive, name + " after the rank's end");
  require(w, rank->polls == 0, name + " while the rank is in progress");
  require(w, group_depth > 0, name + " outside of a group");
  group_members.insert(rank);
  return Result::kSuccess;
}

void end_of(CommHandle comm, const std::string& name) {
  World& w = world();
  Rank* const rank = rank_of(comm);
  w.log.push_back(name + " " + std::to_string(rank->rank));
  require(w, rank->alive, name + " after the rank's end");
  require(w, group_depth == 0, name + " within a group");
  rank->alive = false;
}

Result init(CommHandle* comm, int ranks, UniqueId, int index, Config* config) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mutex);
  w.log.push_back("init " + std::to_string(index) + " on " + current_device());
  require(w, config->blocking == 0, "init that blocks");
  require(w, index < ranks, "init of a rank out of range");
  const Result refused = from(w.script.init_refused, index);
  if (refused != Result::kSuccess) {
    group_depth += w.script.leaks_group_level ? 1 : 0;
    return refused;
  }
  w.ranks.push_back(std::make_unique<Rank>(Rank{index}));
  *comm = reinterpret_cast<CommHandle>(w.ranks.back().get());
  group_members.insert(w.ranks.back().get());
  return Result::kInProgress;
}

Result group_start() {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mutex);
  w.log.push_back("group_start");
  if (w.script.group_start == Result::kSuccess) {
    ++group_depth;
  }
  return w.script.group_start;
}

Result group_end() {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mutex);
  w.log.push_back("group_end");
  if (group_depth == 0) {
    return Result::kInvalidUsage;
  }
  if (--group_depth > 0) {
    return Result::kSuccess;
  }
  const bool had_members = !group_members.empty();
  for (Rank* rank : group_members) {
    const auto polls = w.script.polls.find(rank->rank);
    rank->polls = polls == w.script.polls.end() ? 0 : polls->second;
  }
  group_members.clear();
  if (w.script.group_end != Result::kSuccess) {
    return w.script.group_end;
  }
  return had_members ? Result::kInProgress : Result::kSuccess;
}

Result get_async_error(CommHandle comm, Result* error) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mutex);
  Rank* const rank = rank_of(comm);
  require(w, rank->alive, "a question after the rank's end");
  *error = from(w.script.async_error, rank->rank);
  if (*error == Result::kSuccess && rank->polls != 0) {
    rank->polls -= rank->polls > 0 ? 1 : 0;
    *error = Result::kInProgress;
  }
  return Result::kSuccess;
}

Result finalize(CommHandle comm) {
  rank_of(comm)->finalized = true;
  return member_call("finalize", comm, /*with_device=*/false);
}

Result destroy(CommHandle comm) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mutex);
  require(w, rank_of(comm)->finalized, "destroy before finalize");
  end_of(comm, "destroy");
  return from(w.script.destroy_refused, rank_of(comm)->rank);
}

Result abort(CommHandle comm) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mutex);
  end_of(comm, "abort");
  return Result::kSuccess;
}

Result all_reduce(const void*, void*, size_t, DataType, RedOp, CommHandle comm, StreamHandle) {
  return member_call("all_reduce", comm, /*with_device=*/true);
}

Result unique_id(UniqueId*) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mutex);
  return w.script.unique_id;
}

const char* last_error(CommHandle) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mutex);
  return w.script.last_error.c_str();
}

NcclApi make_api() {
  NcclApi api;
  api.get_unique_id = unique_id;
  api.get_error_string = [](Result) { return "scripted error"; };
  api.get_last_error = last_error;
  api.comm_init_rank_config = init;
  api.comm_finalize = finalize;
  api.comm_destroy = destroy;
  api.comm_abort = abort;
  api.comm_get_async_error = get_async_error;
  api.all_reduce = all_reduce;
  api.group_start = group_start;
  api.group_end = group_end;
  api.path = "scripted";
  api.version = kHeaderVersion;
  return api;
}

}  // namespace

const NcclApi& scripted_nccl() {
  static const auto* const api = new NcclApi(make_api());
  return *api;
}

void set_nccl_script(const NcclScript& script) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mutex);
  w.script = script;
  w.log.clear();
  for (const std::unique_ptr<Rank>& rank : w.ranks) {
    rank->alive = false;
  }
}

void change_nccl_script(const NcclScript& script) {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mutex);
  w.script = script;
}

std::vector<std::string> nccl_log() {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mutex);
  return w.log;
}

int live_nccl_ranks() {
  World& w = world();
  const std::lock_guard<std::mutex> lock(w.mutex);
  int live = 0;
  for (const std::unique_ptr<Rank>& rank : w.ranks) {
    live += rank->alive ? 1 : 0;
  }
  return live;
}

int open_nccl_groups() { return group_depth; }

}  // namespace lockstep::comm::nccl
