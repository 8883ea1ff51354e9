// SPDX-License-Identifier: Apache-2.0
// replica_generators.h: gives each replica random numbers of its own, the same ones in every run,
// whatever the threads do. Internal to the project.
//   ReplicaGenerators generators(devices.size());
//   generators.begin();                                            // once per forward
//   { const ReplicaGenerators::Scope draws(generators, r); ... }   // on the thread of replica r
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "replicate/random_draws.h"
#include "replicate/seeded_generators.h"

namespace lockstep::replicate::internal {

// In a call, replica r draws from generators seeded from (number, r). The number is one draw of 64
// bits from the default CPU generator, made when the first replica draws: a call in which none does
// leaves that generator as it was, and torch::manual_seed or a state that was saved and put back
// repeat a run bit for bit. torch::manual_seed inside a replica does nothing to its generators.
// Replicas on the CPU and on other devices draw different numbers, as LibTorch's devices do. Explicit
// generators are used as they are given. Threads that a replica starts draw as ever.
// A backward that draws, as one that recomputes a forward does, needs a Scope too; it goes on where
// the last call was. It cannot draw the forward's numbers again by putting back the state of the
// default generator, from which they did not come: such code must use a generator of its own.
// Threads: safe. The numbers repeat if at most one thread at a time is in a Scope of a replica.
class ReplicaGenerators {
 public:
  explicit ReplicaGenerators(size_t num_replicas) : replicas_(num_replicas) {}

  // Starts a call. Inside another object's Scope, where the default generator is shared by threads,
  // the call's number comes from that replica's generator and is drawn here, needed or not.
  void begin();

  // While it lives, this thread's draws on any device are the replica's. The generators must
  // outlive it. Makes no memory request; generators are made at a replica's first draw.
  class Scope {
   public:
    Scope(ReplicaGenerators& generators, size_t replica);

   private:
    struct Rule final : DrawRule {
      Rule(ReplicaGenerators& all, size_t index) : generators(all), replica(index) {}
      at::Generator generator_for(c10::Device device) override;

      ReplicaGenerators& generators;
      const size_t replica;
    };

    Rule rule_;
    const DrawRuleScope scope_;
  };

 private:
  struct Replica {
    SeededGenerators generators;
    uint64_t call = 0;  // for which they are seeded
  };

  at::Generator generator_for(size_t replica, c10::Device device);

  std::mutex mutex_;
  uint64_t call_ = 1;
  std::optional<uint64_t> number_;  // of this call
  std::vector<Replica> replicas_;
};

}  // namespace lockstep::replicate::internal
