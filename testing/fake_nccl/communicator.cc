// SPDX-License-Identifier: Apache-2.0
#include "testing/fake_nccl/communicator.h"

#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "testing/fake_nccl/crossing.h"
#include "testing/fake_nccl/library.h"

namespace lockstep::fake_nccl::internal {
namespace {

constexpr char kIdMagic[] = "fake_nccl id";

struct Registry {
  // Never freed, so that a handle is never that of two communicators.
  std::set<Communicator*> communicators;
  std::map<long long, std::shared_ptr<Clique>> cliques;  // by the number in their unique id
  long long ids_made = 0;
  int cliques_made = 0;
};

Registry& registry() {
  static auto* const the_registry = new Registry();
  return *the_registry;
}

}  // namespace

std::vector<Communicator*> Submission::communicators() const {
  std::vector<Communicator*> all = inits;
  all.insert(all.end(), finalizes.begin(), finalizes.end());
  for (const Batch& batch : batches) {
    all.push_back(batch.comm);
  }
  return all;
}

CommHandle handle_of(Communicator* comm) { return reinterpret_cast<CommHandle>(comm); }

Communicator* find(CommHandle handle) {
  const auto found = registry().communicators.find(reinterpret_cast<Communicator*>(handle));
  return found == registry().communicators.end() ? nullptr : *found;
}

Communicator* make_communicator(std::shared_ptr<Clique> clique, int rank, int device) {
  auto* const comm = new Communicator();
  comm->clique = std::move(clique);
  comm->rank = rank;
  comm->device = device;
  registry().communicators.insert(comm);
  ++library().counters.comms_made;
  ++library().counters.comms_live;
  return comm;
}

std::vector<Communicator*> live_communicators() {
  std::vector<Communicator*> live;
  for (Communicator* const comm : registry().communicators) {
    if (comm->state == State::kOpen || comm->state == State::kFinalized) {
      live.push_back(comm);
    }
  }
  return live;
}

std::shared_ptr<Clique> new_clique() {
  auto clique = std::make_shared<Clique>();
  clique->number = ++registry().cliques_made;
  return clique;
}

UniqueId new_unique_id() {
  UniqueId id = {};
  const long long number = ++registry().ids_made;
  std::memcpy(id.internal, kIdMagic, sizeof(kIdMagic));
  std::memcpy(id.internal + sizeof(kIdMagic), &number, sizeof(number));
  registry().cliques[number] = nullptr;
  return id;
}

std::shared_ptr<Clique> clique_of(const UniqueId& id) {
  long long number = 0;
  std::memcpy(&number, id.internal + sizeof(kIdMagic), sizeof(number));
  const auto found = registry().cliques.find(number);
  if (std::memcmp(id.internal, kIdMagic, sizeof(kIdMagic)) != 0 ||
      found == registry().cliques.end()) {
    return nullptr;
  }
  if (!found->second) {
    found->second = new_clique();
  }
  return found->second;
}

std::string describe(const Communicator& comm) {
  return "rank " + std::to_string(comm.rank) + " (device " + std::to_string(comm.device) +
         ") of communicator " + std::to_string(comm.clique->number);
}

Result state_of(const Communicator& comm) {
  if (comm.error != Result::kSuccess) {
    return comm.error;
  }
  return comm.pending ? Result::kInProgress : Result::kSuccess;
}

void break_rank(Communicator* comm, Result error) {
  if (comm->error == Result::kSuccess) {
    comm->error = error;
  }
  comm->pending = nullptr;
  library().changed.notify_all();
}

void break_clique(Clique* clique, Result error) {
  for (Communicator* const member : clique->members) {
    if (member != nullptr) {
      break_rank(member, error);
    }
  }
  clique->round.assign(clique->ranks, std::nullopt);
  forget_crossings(*clique);
}

}  // namespace lockstep::fake_nccl::internal
