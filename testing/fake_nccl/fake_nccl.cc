// SPDX-License-Identifier: Apache-2.0
#include "testing/fake_nccl/fake_nccl.h"

#include <chrono>
#include <string>

#include "testing/fake_nccl/communicator.h"
#include "testing/fake_nccl/faults.h"
#include "testing/fake_nccl/group.h"
#include "testing/fake_nccl/library.h"
#include "testing/fake_nccl/reports.h"

using namespace lockstep::fake_nccl::internal;  // NOLINT: the functions below are its face

void fake_nccl_attach(const FakeNcclHost* host) {
  const Lock lock = lock_library();
  library().is_attached = host != nullptr;
  library().host = host == nullptr ? FakeNcclHost() : *host;
}

const char* fake_nccl_take_reports() {
  const Lock lock = lock_library();
  thread_local std::string text;
  text = take_reports();
  return text.c_str();
}

const char* fake_nccl_live_comms() {
  const Lock lock = lock_library();
  thread_local std::string text;
  text.clear();
  for (const Communicator* const comm : live_communicators()) {
    text += describe(*comm) + (comm->name.empty() ? "" : " '" + comm->name + "'") + "\n";
  }
  return text.c_str();
}

int fake_nccl_group_depth() { return group_depth(); }

FakeNcclCounters fake_nccl_counters() {
  const Lock lock = lock_library();
  return library().counters;
}

void fake_nccl_reset_counters() {
  const Lock lock = lock_library();
  const long long live = library().counters.comms_live;
  library().counters = {};
  library().counters.comms_live = live;
}

void fake_nccl_reset() {
  const Lock lock = lock_library();
  const Library fresh;
  library().polls = fresh.polls;
  library().ring_order = fresh.ring_order;
  library().deadline = fresh.deadline;
  forget_injected();
  take_reports();
}

void fake_nccl_inject(FakeNcclFault fault, int rank, int after) {
  const Lock lock = lock_library();
  inject(fault, rank, after);
}

void fake_nccl_set_polls(int polls) {
  const Lock lock = lock_library();
  library().polls = polls;
}

void fake_nccl_set_deadline_ms(int milliseconds) {
  const Lock lock = lock_library();
  library().deadline = std::chrono::milliseconds(milliseconds);
}

void fake_nccl_set_ring_order(int on) {
  const Lock lock = lock_library();
  library().ring_order = on != 0;
}
