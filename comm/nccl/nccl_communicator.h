// SPDX-License-Identifier: Apache-2.0
// nccl_communicator: the NCCL communicators of one process over a list of devices, made once for
// each list. Everything NCCL is told goes through launch(), one group at a time in the process, so
// that threads which share devices cannot deadlock.
//   const auto communicator = communicator_for(nccl, devices);
//   communicator->launch("broadcast", [&](const NcclApi& nccl, CommHandle comm, int rank) {
//     return nccl.broadcast(source, targets[rank], count, dtype, /*root=*/0, comm, streams[rank]);
//   });
#pragma once

#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/nccl/nccl_api.h"

namespace lockstep::comm::nccl {

namespace internal {
class RankSet;
}  // namespace internal

struct CommunicatorOptions {
  // For all ranks to come up, and for each launch to be taken. NCCL answers at once and works in
  // the background (blocking = 0 in its terms); this is how long it is asked again.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

// Communicators of all ranks; rank i is devices[i].
// Threads: safe. Errors of one launch leave it aborted: every later call throws NcclError at once,
// and communicator_for() makes a new one.
class NcclCommunicator {
 public:
  // Devices: accelerators of one type, with indices, distinct.
  // Throws: c10::Error for another list, naming both positions of a device listed twice; NcclError,
  //   naming rank and device, if a rank could not be made; TimeoutError, naming the ranks that did
  //   not come up. What was made is torn down, and no group level of the thread stays open.
  NcclCommunicator(const NcclApi& nccl, c10::ArrayRef<c10::Device> devices,
                   const CommunicatorOptions& options = {});
  ~NcclCommunicator();  // close(), with a warning if that fails
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // One call of NCCL for a rank.
  using Call = std::function<Result(const NcclApi&, CommHandle, int rank)>;

  // Makes the call for every rank, in rank order with the rank's device current, within one group,
  // and waits until NCCL has enqueued the group on the streams (not until it has run).
  // Throws: NcclError, naming `op`, rank, device and NCCL's text, if a call or the group is refused;
  //   TimeoutError if it is not taken in time. Either way all ranks are aborted, which releases
  //   streams that wait for peers, and the results of this launch are lost. c10::Error if `call`
  //   launches or ends a communicator itself. An exception of `call` aborts too, and comes out.
  // Threads: waits while another thread of the process launches. The thread must have no group of
  //   NCCL open.
  void launch(const char* op, const Call& call);

  // Throws NcclError if a rank has met an error since, after aborting all.
  void check_health(const char* op);

  // Ends all ranks in order, after what was launched. Later launches throw c10::Error. Idempotent.
  // Throws: NcclError, TimeoutError; the ranks are aborted then.
  void close();
  // Ends all ranks at once; what is under way is lost, and a launch that another thread waits for
  // throws NcclError. Idempotent.
  void abort();
  bool is_open() const;

  const std::vector<c10::Device>& devices() const;

 private:
  enum class State { kOpen, kClosed, kAborted };

  // Each of the three is called by the thread that has the turn to launch.
  void check_open(const char* op) const;
  void run_or_abort(const std::function<void()>& work);
  void end_by_abort(const std::string& reason);

  const std::unique_ptr<internal::RankSet> ranks_;
  std::atomic<State> state_{State::kOpen};
  std::string abort_reason_;
};

// The communicator for an ordered device list, made at the first call with the options of that call;
// later ones change nothing. One that was closed or aborted is made anew.
// Threads: safe; two threads that ask for one list get one communicator.
std::shared_ptr<NcclCommunicator> communicator_for(const NcclApi& nccl,
                                                   c10::ArrayRef<c10::Device> devices,
                                                   const CommunicatorOptions& options = {});

// Closes all that communicator_for() has made. Not needed before exit: a process that ends with
// open communicators ends at once, and leaves them to the driver.
void close_communicators();

}  // namespace lockstep::comm::nccl
