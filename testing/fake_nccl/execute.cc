// SPDX-License-Identifier: Apache-2.0
#include "testing/fake_nccl/execute.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "testing/fake_nccl/arithmetic.h"
#include "testing/fake_nccl/library.h"
#include "testing/fake_nccl/reports.h"

namespace lockstep::fake_nccl::internal {
namespace {

char* host_address(const void* device_address) {
  return static_cast<char*>(library().host.memory_at(device_address).host_address);
}

// The calls of one rank that do anything, and the streams they are on.
struct RankWork {
  const Communicator* comm;
  std::vector<const Call*> calls;
  std::vector<StreamHandle> streams;
};

std::vector<RankWork> work_of(const Clique& clique) {
  std::vector<RankWork> all;
  for (int rank = 0; rank < clique.ranks; ++rank) {
    RankWork work = {clique.members[rank], {}, {}};
    for (const Call& call : clique.round[rank]->calls) {
      if (call.count == 0) {
        continue;
      }
      work.calls.push_back(&call);
      if (std::find(work.streams.begin(), work.streams.end(), call.stream) == work.streams.end()) {
        work.streams.push_back(call.stream);
      }
    }
    all.push_back(std::move(work));
  }
  return all;
}

void order(StreamHandle earlier, StreamHandle later) {
  if (earlier != later) {
    library().host.order(earlier, later);
  }
}

// Whether the rank gets data of the other's in the collective, and so has to come after it.
bool gets_data(const Call& call, size_t rank, size_t other) {
  switch (call.kind) {
    case Kind::kBroadcast:
      return static_cast<int>(other) == call.root;
    case Kind::kReduce:
      return static_cast<int>(rank) == call.root;
    default:
      return true;
  }
}

// A rank goes on when those have come whose data it gets, and waits for no others.
void order_ranks(const std::vector<RankWork>& work) {
  for (size_t rank = 0; rank < work.size(); ++rank) {
    for (size_t other = 0; other < work.size(); ++other) {
      const bool waits =
          std::any_of(work[0].calls.begin(), work[0].calls.end(),
                      [&](const Call* call) { return gets_data(*call, rank, other); });
      if (rank != other && waits) {
        order(work[other].streams[0], work[rank].streams[0]);
      }
    }
  }
}

// What the kernel of a rank reads and writes.
std::vector<FakeNcclAccess> accesses_of(const RankWork& work, int ranks) {
  std::vector<FakeNcclAccess> all;
  for (const Call* const call : work.calls) {
    for (const Range& range : accesses(*call, work.comm->rank, ranks)) {
      all.push_back({range.address, range.bytes, range.write});
    }
    if (call->scalar && call->scalar->address != nullptr) {
      all.push_back({call->scalar->address, size_of(call->dtype), false});
    }
  }
  return all;
}

// Memory may have been freed since the call.
Result check_memory(const RankWork& work, const std::vector<FakeNcclAccess>& used) {
  for (const FakeNcclAccess& access : used) {
    const FakeNcclMemory memory = library().host.memory_at(access.address);
    if (memory.device != work.comm->device || memory.bytes < access.bytes) {
      return refuse(Result::kInvalidArgument,
                    describe(*work.comm) + ": memory of " + describe(*work.calls[0]) +
                        (work.calls.size() > 1 ? ", or of another call of its group," : "") +
                        " was freed before the call was carried out");
    }
  }
  return Result::kSuccess;
}

const char* kernel_name(const RankWork& work) {
  if (work.calls.size() > 1) {
    return "nccl group";
  }
  switch (work.calls[0]->kind) {
    case Kind::kAllReduce:
      return "nccl all_reduce";
    case Kind::kReduce:
      return "nccl reduce";
    case Kind::kBroadcast:
      return "nccl broadcast";
    case Kind::kAllGather:
      return "nccl all_gather";
    case Kind::kReduceScatter:
      return "nccl reduce_scatter";
  }
  return "";
}

// One collective: the call of each rank.
struct Collective {
  std::vector<const Call*> calls;

  const Call& call() const { return *calls[0]; }
  size_t ranks() const { return calls.size(); }
  size_t bytes() const { return call().count * size_of(call().dtype); }
  char* send(size_t rank) const { return host_address(calls[rank]->send); }
  char* recv(size_t rank) const { return host_address(calls[rank]->recv); }
};

std::vector<Term> terms_from(const Collective& collective, size_t first) {
  std::vector<Term> terms;
  for (size_t i = 0; i < collective.ranks(); ++i) {
    const size_t rank = (first + i) % collective.ranks();
    const PreMulSum* const scalar = collective.calls[rank]->scalar.get();
    const void* factor = nullptr;
    if (scalar != nullptr) {
      factor = scalar->value;
      if (scalar->address != nullptr) {
        factor = host_address(scalar->address);
      }
    }
    terms.push_back({collective.send(rank), factor});
  }
  return terms;
}

// Elements [begin, begin + count) of the reduction of all ranks' values. In a ring they end at
// rank `home`, so they start at the next.
void fold_part(const Collective& collective, size_t home, size_t begin, size_t count, char* out) {
  const size_t first = library().ring_order ? home + 1 : 0;
  fold(terms_from(collective, first), collective.call().dtype, collective.call().op, begin, count,
       out);
}

std::vector<char> fold_for(const Collective& collective) {
  const Call& call = collective.call();
  const size_t ranks = collective.ranks(), size = size_of(call.dtype);
  if (call.kind == Kind::kReduceScatter) {
    std::vector<char> all(collective.bytes() * ranks);
    for (size_t rank = 0; rank < ranks; ++rank) {
      fold_part(collective, rank, rank * call.count, call.count,
                all.data() + rank * collective.bytes());
    }
    return all;
  }
  std::vector<char> all(collective.bytes());
  if (call.kind == Kind::kReduce) {
    fold_part(collective, call.root, 0, call.count, all.data());
    return all;
  }
  const size_t chunk = (call.count + ranks - 1) / ranks;
  for (size_t rank = 0, begin = 0; begin < call.count; ++rank, begin += chunk) {
    fold_part(collective, rank, begin, std::min(chunk, call.count - begin),
              all.data() + begin * size);
  }
  return all;
}

std::vector<char> gather_for(const Collective& collective) {
  const Call& call = collective.call();
  std::vector<char> all;
  for (size_t rank = 0; rank < collective.ranks(); ++rank) {
    if (call.kind == Kind::kAllGather || static_cast<int>(rank) == call.root) {
      all.insert(all.end(), collective.send(rank), collective.send(rank) + collective.bytes());
    }
  }
  return all;
}

// By a copy of the result, so that calls whose buffers overlap give something too.
void move_data(const Collective& collective) {
  const Call& call = collective.call();
  const std::vector<char> result =
      reduces(call.kind) ? fold_for(collective) : gather_for(collective);
  for (size_t rank = 0; rank < collective.ranks(); ++rank) {
    if (call.kind == Kind::kReduceScatter) {
      std::memcpy(collective.recv(rank), result.data() + rank * collective.bytes(),
                  collective.bytes());
    } else if (call.kind != Kind::kReduce || static_cast<int>(rank) == call.root) {
      std::memcpy(collective.recv(rank), result.data(), result.size());
    }
  }
}

Result launch_all(const std::vector<RankWork>& work) {
  std::vector<std::vector<FakeNcclAccess>> used;
  for (const RankWork& rank : work) {
    used.push_back(accesses_of(rank, static_cast<int>(work.size())));
    const Result result = check_memory(rank, used.back());
    if (result != Result::kSuccess) {
      return result;
    }
  }
  for (const RankWork& rank : work) {
    for (StreamHandle stream : rank.streams) {
      order(stream, rank.streams[0]);
    }
  }
  order_ranks(work);
  for (size_t rank = 0; rank < work.size(); ++rank) {
    const char* const name = kernel_name(work[rank]);
    const char* const wrong =
        library().host.launch(work[rank].streams[0], name, used[rank].data(), used[rank].size());
    ++library().counters.kernels;
    if (wrong != nullptr) {
      report(describe(*work[rank].comm) + ", '" + name + "': " + wrong);
    }
    for (StreamHandle stream : work[rank].streams) {
      order(work[rank].streams[0], stream);
    }
  }
  return Result::kSuccess;
}

}  // namespace

Result execute(const Clique& clique) {
  const std::vector<RankWork> work = work_of(clique);
  if (work[0].calls.empty()) {
    return Result::kSuccess;
  }
  const Result launched = launch_all(work);
  if (launched != Result::kSuccess) {
    return launched;
  }
  for (size_t i = 0; i < work[0].calls.size(); ++i) {
    Collective collective;
    for (const RankWork& rank : work) {
      collective.calls.push_back(rank.calls[i]);
    }
    library().counters.bytes_sent +=
        static_cast<long long>(bytes_sent(collective.call(), clique.ranks));
    move_data(collective);
  }
  return Result::kSuccess;
}

}  // namespace lockstep::fake_nccl::internal
