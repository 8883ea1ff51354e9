// SPDX-License-Identifier: Apache-2.0
// failure.h: what the caller is told when replicas throw.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::parallel {

struct ReplicaFailure {
  int64_t replica = 0;
  c10::Device device = c10::Device(c10::kCPU);
  std::string message;  // what(), or the name of the type if it is no std::exception
};

struct Failure {
  // The one that was thrown at the caller: that of the lowest replica index.
  int64_t replica = 0;
  c10::Device device = c10::Device(c10::kCPU);
  std::string message;

  // The further ones, by replica index.
  std::vector<ReplicaFailure> others;
};

// Returns what went wrong in the last parallel call of the calling thread that threw because a
// replica did; none if there was no such call yet.
// Threads: each thread has its own.
const std::optional<Failure>& last_failure();

namespace internal {

// Throws what the lowest replica threw, if any did, and records all in last_failure(). A c10::Error
// is the same object, with a line of context that names the replica and its device; every other
// type is unchanged. thrown[i] belongs to replica i on devices[i].
void throw_first_failure(const std::vector<std::exception_ptr>& thrown,
                         c10::ArrayRef<c10::Device> devices);

}  // namespace internal
}  // namespace lockstep::parallel
