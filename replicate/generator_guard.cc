// SPDX-License-Identifier: Apache-2.0
#include "replicate/generator_guard.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>

namespace lockstep::replicate::internal {
namespace {

// Guards of several threads may overlap: the first one saves for all, the last one restores.
struct Shared {
  std::mutex mutex;
  int64_t num_guards = 0;
  at::Tensor state;
};

Shared& shared() {
  static auto* const shared = new Shared();
  return *shared;
}

}  // namespace

GeneratorGuard::GeneratorGuard() {
  Shared& all = shared();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (all.num_guards++ == 0) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard<std::mutex> generator_lock(generator.mutex());
    all.state = generator.get_state();
  }
}

GeneratorGuard::~GeneratorGuard() {
  Shared& all = shared();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (--all.num_guards == 0) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard<std::mutex> generator_lock(generator.mutex());
    generator.set_state(all.state);
  }
}

}  // namespace lockstep::replicate::internal
