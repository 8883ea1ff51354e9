// SPDX-License-Identifier: Apache-2.0
// generator_guard.h: leaves the default CPU generator as it was, whatever is drawn in its scope.
#pragma once

namespace lockstep::replicate::internal {

// Copying a module runs its reset(), which draws initial values that are then overwritten. They
// must not cost the user's program its random numbers.
// Threads: safe; guards may overlap. Draws that other threads make from the default generator in
//          the scope are undone too.
class GeneratorGuard {
 public:
  GeneratorGuard();
  ~GeneratorGuard();
  GeneratorGuard(const GeneratorGuard&) = delete;
  GeneratorGuard& operator=(const GeneratorGuard&) = delete;
};

}  // namespace lockstep::replicate::internal
