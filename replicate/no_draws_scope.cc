// SPDX-License-Identifier: Apache-2.0
#include "replicate/no_draws_scope.h"

#include <c10/core/GeneratorImpl.h>

namespace lockstep::replicate::internal {
namespace {

// A layer initialises its parameters once, the module around it once more, and a user's own again.
constexpr int kTimesSkipped = 3;

}  // namespace

NoDrawsScope::NoDrawsScope(Initialisation initialisation) : scope_(rule_) {
  rule_.initialisation = initialisation;
  rule_.scratch.seed(c10::default_rng_seed_val);
}

at::Generator NoDrawsScope::Rule::generator_for(c10::Device device) { return scratch.on(device); }

bool NoDrawsScope::Rule::leaves(const at::Tensor& tensor) {
  if (initialisation == Initialisation::kDrawn || !tensor.requires_grad() || !tensor.is_leaf()) {
    return false;
  }
  Skipped& seen = skipped
                      .try_emplace(tensor.unsafeGetTensorImpl(),
                                   Skipped{WeakTensor(tensor.getIntrusivePtr()), /*times=*/0})
                      .first->second;
  return ++seen.times <= kTimesSkipped;
}

}  // namespace lockstep::replicate::internal
