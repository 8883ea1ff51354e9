// SPDX-License-Identifier: Apache-2.0
#include "testing/fake_nccl/faults.h"

#include <vector>

namespace lockstep::fake_nccl::internal {
namespace {

struct Injected {
  FakeNcclFault fault;
  int rank;
  int after;
};

std::vector<Injected>& injected() {
  static auto* const all = new std::vector<Injected>();
  return *all;
}

}  // namespace

void inject(FakeNcclFault fault, int rank, int after) {
  injected().push_back({fault, rank, after});
}

void forget_injected() { injected().clear(); }

bool strikes(FakeNcclFault fault, int rank) {
  auto& all = injected();
  for (auto one = all.begin(); one != all.end(); ++one) {
    if (one->fault == fault && (one->rank < 0 || one->rank == rank) && one->after-- == 0) {
      all.erase(one);
      return true;
    }
  }
  return false;
}

}  // namespace lockstep::fake_nccl::internal
