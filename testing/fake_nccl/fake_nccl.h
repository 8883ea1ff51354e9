// SPDX-License-Identifier: Apache-2.0
// fake_nccl.h: how a test talks to libfake_nccl.so, a library with NCCL's C interface that runs on
// simulated devices and judges its caller more strictly than NCCL does. See README.md.
// The library links nothing of the simulated devices: the test hands it what it needs of them.
#pragma once

#include <stddef.h>

#define FAKE_NCCL_API __attribute__((visibility("default")))

extern "C" {

/* What lies at a device address. */
struct FakeNcclMemory {
  int device;         /* -1: no device's live memory */
  void* host_address; /* where this process may read and write it */
  size_t bytes;       /* from the address to the end of the allocation */
};

/* One range that a kernel reads or writes. */
struct FakeNcclAccess {
  const void* address; /* of device memory */
  size_t bytes;
  int write;
};

/* The devices, as the test sees them. Every member must be set; no function may throw. */
struct FakeNcclHost {
  int (*device_count)(void);
  int (*current_device)(void); /* of the calling thread */
  struct FakeNcclMemory (*memory_at)(const void* address);
  int (*device_of_stream)(void* stream); /* -1: not a stream */
  /* Tells the checker of one kernel on `stream`; `name` lives for ever. Returns null, or what is
   * wrong and to be reported here: a text that lives until the thread's next call. The collective
   * goes on either way. */
  const char* (*launch)(void* stream, const char* name, const struct FakeNcclAccess* accesses,
                        size_t count);
  /* Whatever `later` is given from now on comes after all that `earlier` holds now. */
  void (*order)(void* earlier, void* later);
};
/* Until then the library is one on a machine without a driver. Null: again from then on. */
FAKE_NCCL_API void fake_nccl_attach(const struct FakeNcclHost* host);

/* The rules broken since the last call, one a line, oldest first; empty if none. Forgets them. The
 * text lives until the thread's next call. */
FAKE_NCCL_API const char* fake_nccl_take_reports(void);

/* The communicators that were neither destroyed nor aborted, one a line; as above. */
FAKE_NCCL_API const char* fake_nccl_live_comms(void);

/* How many groups of the calling thread are open, those that a failed init left included. */
FAKE_NCCL_API int fake_nccl_group_depth(void);

/* Exact counts since the start or the last reset. */
struct FakeNcclCounters {
  long long calls;      /* of collectives: one for each rank and operation */
  long long kernels;    /* one for each rank and outermost group or lone call */
  long long groups;     /* outermost groups that held a collective; a lone call is none */
  long long bytes_sent; /* from one rank to another, as a minimal algorithm in rank order would */
  long long comms_made;
  long long comms_live; /* never reset */
};
FAKE_NCCL_API struct FakeNcclCounters fake_nccl_counters(void);
FAKE_NCCL_API void fake_nccl_reset_counters(void);

/* Forgets injected failures, reports and modes. Communicators stay. */
FAKE_NCCL_API void fake_nccl_reset(void);

/* What goes wrong, once, at the `after`-th (from 0) matching call from now; -1 for rank: any. */
enum FakeNcclFault {
  kFakeInitFails = 0,        /* comm init of the rank returns ncclSystemError */
  kFakeInitOutOfMemory = 1,  /* comm init of the rank returns ncclUnhandledCudaError */
  kFakeInitNeverArrives = 2, /* the rank's init never comes: it and its peers stay in progress */
  kFakeRankNeverArrives = 3, /* the same for its collectives, from that one on */
  kFakeRemoteError = 4,      /* comm_get_async_error of the rank gives ncclRemoteError */
  kFakeSystemError = 5,      /* a collective of the rank returns ncclSystemError */
  kFakeOutOfMemory = 6,      /* a collective of the rank returns ncclUnhandledCudaError */
  kFakeNoDriver = 7          /* comm_init_rank_config of the rank returns ncclUnhandledCudaError and
                              * leaves a group open, as NCCL 2.28.9 does without a driver */
};
FAKE_NCCL_API void fake_nccl_inject(enum FakeNcclFault fault, int rank, int after);

/* How often a non-blocking call answers ncclInProgress, its own answer included, before it is
 * carried out; 1 unless set. */
FAKE_NCCL_API void fake_nccl_set_polls(int polls);

/* How long a blocking call waits for its peers, and a non-blocking one is asked about, before that
 * is reported as a deadlock and the communicator breaks; 10000 unless set. */
FAKE_NCCL_API void fake_nccl_set_deadline_ms(int milliseconds);

/* 0: sums run in rank order (the default). 1: in the order of a ring: each of `ranks` chunks starts
 * at another rank, as NCCL's ring algorithm does. */
FAKE_NCCL_API void fake_nccl_set_ring_order(int on);
}
