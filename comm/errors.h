// SPDX-License-Identifier: Apache-2.0
// errors: what comm throws when a peer or a transport is at fault. Mistakes of the caller are plain
// c10::Error; catch comm::Error to tell trouble outside the program from them.
//   try { step(); } catch (const lockstep::comm::Error& e) { if (e.recoverable()) retry(); }
#pragma once

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::comm {

// Who was hit. What is not known stays empty.
struct ErrorContext {
  std::optional<int64_t> rank;
  std::optional<c10::Device> device;
  bool recoverable = false;  // the same call may be tried again on the same communicator
};

// The base. The message ends with the rank and the device, where they are known.
class Error : public c10::DistBackendError {
 public:
  Error(c10::SourceLocation location, const std::string& message, const ErrorContext& context);

  const std::optional<int64_t>& rank() const { return context_.rank; }
  const std::optional<c10::Device>& device() const { return context_.device; }
  bool recoverable() const { return context_.recoverable; }

 private:
  ErrorContext context_;
};

// The NCCL library refused a call or reported an asynchronous error.
class NcclError : public Error {
 public:
  using Error::Error;
};

// A deadline passed before every participant arrived.
class TimeoutError : public Error {
 public:
  using Error::Error;
};

// A participant is gone: its process ended or its connection broke.
class PeerLostError : public Error {
 public:
  using Error::Error;
};

}  // namespace lockstep::comm
