// SPDX-License-Identifier: Apache-2.0
#include "testing/fake_nccl/init.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "testing/fake_nccl/crossing.h"
#include "testing/fake_nccl/faults.h"
#include "testing/fake_nccl/group.h"
#include "testing/fake_nccl/reports.h"

namespace lockstep::fake_nccl::internal {
namespace {

constexpr unsigned kConfigMagic = 0xcafebeef;

std::string misuse(const Config& config) {
  if (config.size != sizeof(Config) || config.magic != kConfigMagic) {
    return "expected a config that begins with its size and magic number, got another";
  }
  if (config.version < static_cast<unsigned>(comm::nccl::kOldestVersion) ||
      config.version > static_cast<unsigned>(comm::nccl::kHeaderVersion)) {
    return "expected a config of version " + std::to_string(comm::nccl::kOldestVersion) + " to " +
           std::to_string(comm::nccl::kHeaderVersion) + ", got " + std::to_string(config.version);
  }
  if (config.blocking != comm::nccl::kUndefined && config.blocking != 0 && config.blocking != 1) {
    return "expected blocking 0 or 1, got " + std::to_string(config.blocking);
  }
  return "";
}

std::string misuse(int ranks, int rank, const Config* config) {
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    return "expected a rank below the number of ranks, got rank " + std::to_string(rank) + " of " +
           std::to_string(ranks);
  }
  return config == nullptr ? "" : misuse(*config);
}

// What is wrong with one more rank in the clique, and how NCCL answers.
std::pair<Result, std::string> misuse(const Clique& clique, int ranks, int rank, int device) {
  const auto is_known = [](const Communicator* member) { return member != nullptr; };
  const auto known = std::find_if(clique.members.begin(), clique.members.end(), is_known);
  if (known == clique.members.end()) {
    return {Result::kSuccess, ""};
  }
  const bool is_used =
      clique.initialised == clique.ranks ||
      std::any_of(clique.members.begin(), clique.members.end(), [](const Communicator* member) {
        return member != nullptr && member->state != State::kOpen;
      });
  if (is_used) {
    return {Result::kInvalidUsage, "the unique id was used for communicator " +
                                       std::to_string(clique.number) +
                                       " before; each needs one of its own"};
  }
  if (ranks != clique.ranks) {
    return {Result::kInvalidArgument, "expected " + std::to_string(clique.ranks) +
                                          " ranks, as rank " + std::to_string((*known)->rank) +
                                          " said, got " + std::to_string(ranks)};
  }
  if (clique.members[rank] != nullptr) {
    return {Result::kInvalidUsage, "the rank was initialised before"};
  }
  for (const Communicator* const member : clique.members) {
    if (member != nullptr && member->device == device) {
      return {Result::kInvalidUsage,
              "ranks " + std::to_string(member->rank) + " and " + std::to_string(rank) +
                  " are both on device " + std::to_string(device) +
                  "; is each rank's device current when its init is called?"};
    }
  }
  return {Result::kSuccess, ""};
}

Result struck(int rank) {
  if (strikes(kFakeInitFails, rank)) {
    return fail(Result::kSystemError, "init of rank " + std::to_string(rank) + " failed");
  }
  if (strikes(kFakeInitOutOfMemory, rank)) {
    return fail(Result::kUnhandledCudaError,
                "init of rank " + std::to_string(rank) + ": out of memory");
  }
  return Result::kSuccess;
}

Result join(CommHandle* made, const std::shared_ptr<Clique>& clique, int ranks, int rank,
            int device, bool is_blocking, const char* name) {
  const auto [result, wrong] = misuse(*clique, ranks, rank, device);
  if (result != Result::kSuccess) {
    return refuse(result, "init of rank " + std::to_string(rank) + " (device " +
                              std::to_string(device) + "): " + wrong);
  }
  const Result injected = struck(rank);
  if (injected != Result::kSuccess) {
    clique->is_injected = true;
    return injected;
  }
  clique->ranks = ranks;
  clique->members.resize(ranks);
  Communicator* const comm = make_communicator(clique, rank, device);
  clique->members[rank] = comm;
  comm->is_blocking = is_blocking;
  comm->name = name == nullptr ? "" : name;
  comm->init_is_dropped = strikes(kFakeInitNeverArrives, rank);
  *made = handle_of(comm);
  return add_init(comm);
}

}  // namespace

Communicator* live(CommHandle handle, const char* function, Result* refused) {
  Communicator* const comm = find(handle);
  const std::string call = std::string(function) + ": ";
  std::string wrong;
  if (handle == nullptr) {
    wrong = call + "expected a communicator, got null";
  } else if (comm == nullptr) {
    wrong = call + "expected a communicator, got what init never made";
  } else if (comm->state == State::kDestroyed) {
    wrong = describe(*comm) + ", " + call + "it was destroyed before";
  } else if (comm->state == State::kAborted) {
    wrong = describe(*comm) + ", " + call + "it was aborted before";
  } else {
    return comm;
  }
  *refused = refuse(Result::kInvalidArgument, wrong);
  return nullptr;
}

Result init_rank(CommHandle* made, int ranks, const UniqueId& id, int rank, const Config* config) {
  const auto refuse_argument = [&](const std::string& what) {
    return refuse(Result::kInvalidArgument, "init of rank " + std::to_string(rank) + ": " + what);
  };
  if (made == nullptr) {
    return refuse_argument("expected a place for the communicator, got null");
  }
  *made = nullptr;
  const std::string wrong = misuse(ranks, rank, config);
  if (!wrong.empty()) {
    return refuse_argument(wrong);
  }
  const std::shared_ptr<Clique> clique = clique_of(id);
  if (!clique) {
    return refuse_argument("expected a unique id of get_unique_id, got another");
  }
  return join(made, clique, ranks, rank, library().host.current_device(),
              config == nullptr || config->blocking != 0,
              config == nullptr ? nullptr : config->comm_name);
}

Result init_all(CommHandle* made, int ranks, const int* devices) {
  const int present = library().host.device_count();
  if (made == nullptr || ranks < 1 || ranks > present) {
    return refuse(Result::kInvalidArgument,
                  "comm_init_all: expected a place for 1 to " + std::to_string(present) +
                      " communicators, got " +
                      (made == nullptr ? "null" : "one for " + std::to_string(ranks)));
  }
  std::fill_n(made, ranks, nullptr);
  const std::shared_ptr<Clique> clique = new_clique();
  for (int rank = 0; rank < ranks; ++rank) {
    const int device = devices == nullptr ? rank : devices[rank];
    const Result result =
        device < 0 || device >= present
            ? refuse(Result::kInvalidArgument,
                     "comm_init_all: expected devices below " + std::to_string(present) + ", got " +
                         std::to_string(device) + " at position " + std::to_string(rank))
            : join(&made[rank], clique, ranks, rank, device, true, nullptr);
    if (result != Result::kSuccess) {
      for (int other = 0; other < rank; ++other) {
        abort(find(made[other]));
      }
      std::fill_n(made, ranks, nullptr);
      return result;
    }
  }
  return Result::kSuccess;
}

void arrive_in_init(Communicator* comm) {
  Clique& clique = *comm->clique;
  if (comm->error != Result::kSuccess) {
    return;
  }
  if (comm->init_is_dropped) {
    clique.is_injected = true;
    return;
  }
  if (++clique.initialised < clique.ranks) {
    return;
  }
  clique.round.assign(clique.ranks, std::nullopt);
  for (Communicator* const member : clique.members) {
    member->is_initialised = true;
    member->pending = nullptr;
  }
  library().changed.notify_all();
}

void destroy(Communicator* comm) {
  if (comm->pending != nullptr) {
    report(describe(*comm) +
           ", comm_destroy: the call before it is still in progress; abort it, or ask "
           "comm_get_async_error until it is not");
  }
  if (drop_calls(*comm)) {
    report(describe(*comm) + ", comm_destroy: the open group of the thread holds calls of it");
  }
  comm->state = State::kDestroyed;
  --library().counters.comms_live;
  comm->pending = nullptr;
  library().changed.notify_all();
}

void abort(Communicator* comm) {
  Clique& clique = *comm->clique;
  drop_calls(*comm);
  comm->state = State::kAborted;
  --library().counters.comms_live;
  break_rank(comm, Result::kInternalError);
  // Who waits for it is released.
  const bool was_initialised = comm->is_initialised;
  for (int rank = 0; rank < clique.ranks; ++rank) {
    Communicator* const member = clique.members[rank];
    if (member == nullptr || member->pending == nullptr) {
      continue;
    }
    if (!was_initialised || clique.round[rank]) {
      break_rank(member, Result::kRemoteError);
    }
  }
  clique.round.assign(clique.ranks, std::nullopt);
  forget_crossings(clique);
}

}  // namespace lockstep::fake_nccl::internal
