// SPDX-License-Identifier: Apache-2.0
#include "testing/fake_nccl/simulated_nccl.h"

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <sstream>

#include "testing/simdev/checker.h"
#include "testing/simdev/native_launch.h"
#include "testing/simdev/test_environment.h"

namespace lockstep::fake_nccl {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// What the library asks of the devices.

int current_device() {
  return c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1).getDevice().index();
}

FakeNcclMemory memory_at(const void* address) {
  const auto memory = simdev::native_memory(address);
  return memory ? FakeNcclMemory{memory->device, memory->host_address, memory->bytes}
                : FakeNcclMemory{-1, nullptr, 0};
}

int device_of_stream(void* handle) {
  const auto stream = simdev::stream_of_native_handle(handle);
  return stream ? stream->device_index() : -1;
}

const char* launch(void* handle, const char* name, const FakeNcclAccess* accesses, size_t count) {
  thread_local std::string wrong;
  try {
    std::vector<simdev::NativeAccess> all;
    for (size_t i = 0; i < count; ++i) {
      all.push_back({accesses[i].address, accesses[i].bytes, accesses[i].write != 0});
    }
    simdev::native_launch(simdev::stream_of_native_handle(handle).value(), name, all);
    return nullptr;
  } catch (const simdev::RaceError&) {
    return nullptr;  // among the checker's own reports, where a test looks for it
  } catch (const std::exception& error) {
    wrong = error.what();
    return wrong.c_str();
  }
}

void order(void* earlier, void* later) {
  simdev::native_order(simdev::stream_of_native_handle(earlier).value(),
                       simdev::stream_of_native_handle(later).value());
}

struct Library {
  const comm::nccl::NcclApi* api;
  void* handle;
};

std::atomic<bool> is_loaded{false};

template <class Function>
Function* find(void* handle, const char* name) {
  void* const found = dlsym(handle, name);
  TORCH_CHECK(found != nullptr, "[simulated_nccl] expected '", name, "' in ", library_path());
  return reinterpret_cast<Function*>(found);
}

Library load() {
  const std::string path = library_path();
  const comm::nccl::NcclApi& api = comm::nccl::load_nccl(path);
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  TORCH_CHECK(handle != nullptr, "[simulated_nccl] ", dlerror());
  const FakeNcclHost host = {&simdev::device_count, &current_device, &memory_at,
                             &device_of_stream,     &launch,         &order};
  find<decltype(fake_nccl_attach)>(handle, "fake_nccl_attach")(&host);
  is_loaded = true;
  return {&api, handle};
}

const Library& loaded() {
  static const Library library = load();
  return library;
}

// A control function of the library, by the name it is declared with in fake_nccl.h.
#define FAKE_NCCL(function) find<decltype(function)>(loaded().handle, #function)

std::vector<std::string> lines(const char* text) {
  std::vector<std::string> all;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    all.push_back(line);
  }
  return all;
}

class RuleListener final : public ::testing::EmptyTestEventListener {
 public:
  void OnTestEnd(const ::testing::TestInfo& /*test*/) override {
    if (!is_loaded) {
      return;
    }
    for (const std::string& line : take_reports()) {
      ADD_FAILURE() << "a broken rule that the test did not take: " << line;
    }
    if (open_groups() > 0) {
      ADD_FAILURE() << "the test left " << open_groups() << " groups open";
      while (open_groups() > 0) {
        simulated_nccl().group_end();
      }
    }
    FAKE_NCCL(fake_nccl_reset)();
    reset_counters();
  }
};

}  // namespace

std::string library_path() {
  std::string path = variable("LOCKSTEP_FAKE_NCCL");
  if (!path.empty()) {
    return path;
  }
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  // Where `bazel test` and `bazel run` put it, here and in a workspace that depends on this one.
  for (const std::string& root : {variable("TEST_SRCDIR"), program + ".runfiles"}) {
    path = root + "/lockstep/testing/fake_nccl/libfake_nccl.so";
    if (std::filesystem::exists(path)) {
      break;
    }
  }
  return path;
}

const comm::nccl::NcclApi& simulated_nccl() { return *loaded().api; }

bool use_in_tests(const simdev::Options& options) {
  simdev::use_in_tests(options);
  // GoogleTest's from here on.
  ::testing::UnitTest::GetInstance()->listeners().Append(new RuleListener());
  return true;
}

std::vector<std::string> take_reports() { return lines(FAKE_NCCL(fake_nccl_take_reports)()); }

std::vector<std::string> live_communicators() { return lines(FAKE_NCCL(fake_nccl_live_comms)()); }

int open_groups() { return FAKE_NCCL(fake_nccl_group_depth)(); }

FakeNcclCounters counters() { return FAKE_NCCL(fake_nccl_counters)(); }
void reset_counters() { FAKE_NCCL(fake_nccl_reset_counters)(); }

void inject(FakeNcclFault fault, int rank, int after) {
  FAKE_NCCL(fake_nccl_inject)(fault, rank, after);
}

void set_polls(int polls) { FAKE_NCCL(fake_nccl_set_polls)(polls); }

void set_deadline(std::chrono::milliseconds deadline) {
  FAKE_NCCL(fake_nccl_set_deadline_ms)(static_cast<int>(deadline.count()));
}

void set_ring_order(bool on) { FAKE_NCCL(fake_nccl_set_ring_order)(on ? 1 : 0); }

#undef FAKE_NCCL

}  // namespace lockstep::fake_nccl
