// SPDX-License-Identifier: Apache-2.0
// no_draws_scope.h: runs code that initialises a module whose values will be replaced anyway,
// without a draw from any generator of the program. Internal to replicate.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/UndefinedTensorImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <unordered_map>

#include "replicate/random_draws.h"
#include "replicate/seeded_generators.h"

namespace lockstep::replicate::internal {

// While it lives, on this thread:
// - uniform_, normal_ and the like leave a parameter (a leaf that requires grad) as it is, which is
//   uninitialised as a rule. Filling it with zeros would touch all its memory, and serve code that
//   computes with the values no better.
// - All other draws are made, from scratch generators with a fixed seed, also where the code gives
//   a generator: a tensor in no registry keeps what it drew, integers may be indices, and
//   orthogonal_ decomposes what it drew.
// - A parameter that is drawn over and over is drawn from the fourth time on: a loop that waits for
//   values that fit ends. Code that throws over the values is the caller's to run again, kDrawn.
// Other threads, and code that asks a generator object for numbers, draw as ever.
class NoDrawsScope {
 public:
  enum class Initialisation { kSkipped, kDrawn };  // kDrawn: parameters too, from scratch

  explicit NoDrawsScope(Initialisation initialisation = Initialisation::kSkipped);

  // Whether a parameter has been left as it was.
  bool has_skipped() const { return !rule_.skipped.empty(); }

 private:
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

  struct Skipped {
    WeakTensor tensor;  // so that no other tensor gets its address
    int times;
  };

  struct Rule final : DrawRule {
    at::Generator generator_for(c10::Device device) override;
    bool replaces_given() const override { return true; }
    bool leaves(const at::Tensor& tensor) override;

    Initialisation initialisation = Initialisation::kSkipped;
    SeededGenerators scratch;
    std::unordered_map<const c10::TensorImpl*, Skipped> skipped;
  };

  Rule rule_;
  const DrawRuleScope scope_;
};

}  // namespace lockstep::replicate::internal
