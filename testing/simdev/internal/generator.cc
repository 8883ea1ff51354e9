// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GeneratorImpl.h>
#include <c10/util/Exception.h>

#include <mutex>
#include <utility>
#include <vector>

#include "testing/simdev/internal/streams.h"
#include "testing/simdev/simdev.h"

namespace lockstep::simdev::internal {
namespace {

// All state is the host generator's, under its own lock, which the kernels that draw take too.
class DeviceGenerator final : public c10::GeneratorImpl {
 public:
  DeviceGenerator(int index, at::Generator host)
      : GeneratorImpl(simdev::device(index), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        host_(std::move(host)) {}

  const at::Generator& host() const { return host_; }

  void set_current_seed(uint64_t seed) override {
    const std::lock_guard<std::mutex> lock(host_.mutex());
    host_.set_current_seed(seed);
  }
  uint64_t current_seed() const override { return host_.current_seed(); }
  uint64_t seed() override {
    const std::lock_guard<std::mutex> lock(host_.mutex());
    return host_.seed();
  }
  void set_offset(uint64_t offset) override { host_.set_offset(offset); }
  uint64_t get_offset() const override { return host_.get_offset(); }
  void set_state(const c10::TensorImpl& state) override {
    const std::lock_guard<std::mutex> lock(host_.mutex());
    host_.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const std::lock_guard<std::mutex> lock(host_.mutex());
    return host_.unsafeGetGeneratorImpl()->get_state();
  }

 private:
  DeviceGenerator* clone_impl() const override {
    const std::lock_guard<std::mutex> lock(host_.mutex());
    return new DeviceGenerator(device().index(), host_.clone());
  }

  mutable at::Generator host_;
};

std::vector<at::Generator> make_default_generators() {
  std::vector<at::Generator> generators;
  for (int index = 0; index < device_count(); ++index) {
    generators.push_back(make_generator(index));
  }
  return generators;
}

}  // namespace

const at::Generator& default_generator(int index) {
  static const auto* const generators = new std::vector<at::Generator>(make_default_generators());
  return (*generators)[index];
}

at::Generator make_generator(int index) {
  return at::make_generator<DeviceGenerator>(index, at::detail::createCPUGenerator());
}

at::Generator host_generator(const at::Generator& device_generator) {
  const auto* const generator =
      dynamic_cast<const DeviceGenerator*>(device_generator.unsafeGetGeneratorImpl());
  TORCH_CHECK(generator != nullptr,
              "[simdev] expected a generator of a simulated device, got one of ",
              device_generator.device());
  return generator->host();
}

}  // namespace lockstep::simdev::internal
