// SPDX-License-Identifier: Apache-2.0
#include "replicate/seeded_generators.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/util/Exception.h>

#include <mutex>
#include <utility>

namespace lockstep::replicate::internal {
namespace {

// A backend may have no way to make a generator, and says so by an error.
at::Generator make_generator_or_none(c10::Device device) {
  if (device.is_cpu()) {
    return at::detail::createCPUGenerator();
  }
  try {
    return at::globalContext()
        .getAcceleratorHooksInterface(device.type())
        .getNewGenerator(device.index());
  } catch (const c10::Error&) {
    return {};
  }
}

}  // namespace

bool SeededGenerators::exist_on(c10::DeviceType type) {
  return type == c10::kCPU || at::isAccelerator(type);
}

void SeededGenerators::seed(uint64_t seed) {
  seed_ = seed;
  for (Entry& entry : entries_) {
    entry.seeded = false;
  }
}

at::Generator SeededGenerators::on(c10::Device device) {
  if (!exist_on(device.type())) {
    return {};
  }
  size_t e = 0;
  while (e < entries_.size() && entries_[e].device != device) {
    ++e;
  }
  if (e == entries_.size()) {
    entries_.push_back({device, make_generator_or_none(device), false});
  }
  Entry& entry = entries_[e];
  if (!entry.seeded && entry.generator.defined()) {
    const std::lock_guard<std::mutex> lock(entry.generator.mutex());
    entry.generator.set_current_seed(seed_);
    entry.seeded = true;
  }
  return entry.generator;
}

}  // namespace lockstep::replicate::internal
