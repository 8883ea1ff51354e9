// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/nccl_communicator.h"

#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>

#include "comm/errors.h"
#include "comm/nccl/internal/launch_turn.h"
#include "comm/nccl/internal/rank_set.h"

namespace lockstep::comm::nccl {
namespace {

std::vector<c10::Device> checked(c10::ArrayRef<c10::Device> devices) {
  TORCH_CHECK(!devices.empty(), "[NcclCommunicator] expected at least one device, got none");
  for (size_t i = 0; i < devices.size(); ++i) {
    TORCH_CHECK(!devices[i].is_cpu() && devices[i].has_index(),
                "[NcclCommunicator] expected accelerators with an index, got ", devices[i],
                " at position ", i);
    TORCH_CHECK(devices[i].type() == devices[0].type(),
                "[NcclCommunicator] expected devices of one type, got ", devices[0],
                " at position 0 and ", devices[i], " at position ", i);
    for (size_t j = 0; j < i; ++j) {
      TORCH_CHECK(devices[j] != devices[i], "[NcclCommunicator] expected distinct devices, got ",
                  devices[i], " at positions ", j, " and ", i);
    }
  }
  return devices.vec();
}

std::string text_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of another type";
  }
}

std::string list(const std::vector<c10::Device>& devices) {
  std::string text;
  for (const c10::Device& device : devices) {
    text += (text.empty() ? "" : ", ") + device.str();
  }
  return text;
}

}  // namespace

NcclCommunicator::NcclCommunicator(const NcclApi& nccl, c10::ArrayRef<c10::Device> devices,
                                   const CommunicatorOptions& options)
    : ranks_(std::make_unique<internal::RankSet>(nccl, checked(devices), options.timeout)) {
  const internal::LaunchTurn turn("NcclCommunicator");
  ranks_->make();
}

NcclCommunicator::~NcclCommunicator() {
  if (!is_open()) {
    return;
  }
  try {
    close();
  } catch (const std::exception& error) {
    TORCH_WARN("[~NcclCommunicator] a communicator did not end well: ", error.what());
  }
}

void NcclCommunicator::launch(const char* op, const Call& call) {
  const internal::LaunchTurn turn(op);
  check_open(op);
  run_or_abort([&] { ranks_->run_group(op, call); });
}

void NcclCommunicator::check_health(const char* op) {
  const internal::LaunchTurn turn(op);
  check_open(op);
  run_or_abort([&] { ranks_->check_health(op); });
}

void NcclCommunicator::close() {
  const internal::LaunchTurn turn("close");
  if (!is_open()) {
    return;
  }
  run_or_abort([&] { ranks_->finish("close"); });
  state_ = State::kClosed;
}

void NcclCommunicator::abort() {
  // A thread that waits for NCCL in a launch gives its turn back.
  ranks_->request_stop();
  const internal::LaunchTurn turn("abort");
  if (is_open()) {
    end_by_abort("abort() was called");
  }
}

bool NcclCommunicator::is_open() const { return state_ == State::kOpen; }

const std::vector<c10::Device>& NcclCommunicator::devices() const { return ranks_->devices(); }

void NcclCommunicator::check_open(const char* op) const {
  TORCH_CHECK(state_ != State::kClosed, "[", op,
              "] expected an open communicator, got one that was closed, over ", list(devices()));
  if (state_ == State::kAborted) {
    throw NcclError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                    std::string("[") + op + "] the communicator over " + list(devices()) +
                        " was aborted: " + abort_reason_,
                    {});
  }
}

void NcclCommunicator::run_or_abort(const std::function<void()>& work) {
  try {
    work();
  } catch (...) {
    end_by_abort(text_of(std::current_exception()));
    throw;
  }
}

void NcclCommunicator::end_by_abort(const std::string& reason) {
  ranks_->abort();
  abort_reason_ = reason;
  state_ = State::kAborted;
}

}  // namespace lockstep::comm::nccl
