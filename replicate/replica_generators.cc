// SPDX-License-Identifier: Apache-2.0
#include "replicate/replica_generators.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>

namespace lockstep::replicate::internal {
namespace {

uint64_t draw_number(at::Generator generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
}

// LibTorch's CPU generator uses the lower 32 bits of a seed alone. Every step to them is one to
// one, so the replicas of a call never have the same ones. (The constants are those of known
// mixers: lowbias32, and splitmix64 for the upper half.)
uint64_t seed_of(uint64_t number, uint64_t replica) {
  auto low = static_cast<uint32_t>(number) + static_cast<uint32_t>(replica) * 0x9e3779b9U;
  low = (low ^ (low >> 16U)) * 0x7feb352dU;
  low = (low ^ (low >> 15U)) * 0x846ca68bU;
  low ^= low >> 16U;
  uint64_t high = number + replica * 0x9e3779b97f4a7c15U;
  high = (high ^ (high >> 30U)) * 0xbf58476d1ce4e5b9U;
  high = (high ^ (high >> 27U)) * 0x94d049bb133111ebU;
  high ^= high >> 31U;
  return (high << 32U) | low;
}

}  // namespace

void ReplicaGenerators::begin() {
  std::optional<uint64_t> number;
  if (DrawRule* const outer = DrawRuleScope::current()) {
    number = draw_number(outer->generator_for(c10::kCPU));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  ++call_;
  number_ = number;
}

at::Generator ReplicaGenerators::generator_for(size_t replica, c10::Device device) {
  if (!SeededGenerators::exist_on(device.type())) {
    return {};
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  Replica& drawing = replicas_[replica];
  if (drawing.call != call_) {
    if (!number_.has_value()) {
      number_ = draw_number(at::detail::getDefaultCPUGenerator());
    }
    drawing.generators.seed(seed_of(*number_, replica));
    drawing.call = call_;
  }
  return drawing.generators.on(device);
}

ReplicaGenerators::Scope::Scope(ReplicaGenerators& generators, size_t replica)
    : rule_(generators, replica), scope_(rule_) {
  TORCH_INTERNAL_ASSERT(replica < generators.replicas_.size());
}

at::Generator ReplicaGenerators::Scope::Rule::generator_for(c10::Device device) {
  return generators.generator_for(replica, device);
}

}  // namespace lockstep::replicate::internal
