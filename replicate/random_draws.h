// SPDX-License-Identifier: Apache-2.0
// random_draws.h: decides, for one thread and for a while, what LibTorch's random operators draw
// from. The two uses are replica_generators.h (each replica draws from generators of its own) and
// no_draws_scope.h (a module is copied without a draw). Internal to the project.
// Out of reach is what takes no generator: dropout between cuDNN's recurrent layers and inside fused
// attention kernels, kernels of the user's own, and code that asks LibTorch for the default generator
// and draws from it by hand. The fused dropout of accelerators takes none either: in a scope it is
// done by three kernels instead of one.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace lockstep::replicate::internal {

// See Note [Intercepted Draws].
constexpr auto kDrawKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

class DrawRule {
 public:
  virtual ~DrawRule() = default;

  // The generator for an operator on `device` that was given none; undefined: LibTorch's default.
  virtual at::Generator generator_for(c10::Device device) = 0;

  // Whether an operator that was given a generator gets generator_for() its device all the same.
  virtual bool replaces_given() const { return false; }

  // Whether `tensor`, all of which uniform_, normal_ or another of their kind is about to
  // overwrite, stays as it is instead.
  virtual bool leaves(const at::Tensor& tensor);
};

// While it lives, the random operators of this thread, and of no other, go by `rule`. Scopes nest:
// the innermost counts.
// Throws: c10::Error, the first one of a process, if LibTorch does not let operators be intercepted.
class DrawRuleScope {
 public:
  explicit DrawRuleScope(DrawRule& rule) : DrawRuleScope(rule, installed()) {}
  ~DrawRuleScope();
  DrawRuleScope(const DrawRuleScope&) = delete;
  DrawRuleScope& operator=(const DrawRuleScope&) = delete;

  // The rule of this thread's innermost scope, or null.
  static DrawRule* current();

 private:
  struct Installed {};
  static Installed installed();
  static void check_interception();
  DrawRuleScope(DrawRule& rule, Installed);

  DrawRule* const outer_;
  const c10::impl::IncludeDispatchKeyGuard key_;
};

}  // namespace lockstep::replicate::internal
