// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/memory.h"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "testing/matchers.h"
#include "testing/simdev/checker.h"
#include "testing/simdev/counters.h"
#include "testing/simdev/internal/block_pool.h"
#include "testing/simdev/internal/ordering.h"
#include "testing/simdev/test_environment.h"

namespace lockstep::simdev {
namespace {

using lockstep::testing::ThrowsError;

constexpr size_t kMemory = size_t{8} << 20;

const bool kDevicesInUse = use_in_tests({/*devices=*/4, kMemory, /*quarantine_bytes=*/1 << 20});

class MemoryTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { set_checking(GetParam()); }
  void TearDown() override { set_checking(true); }
};
INSTANTIATE_TEST_SUITE_P(Checker, MemoryTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "On" : "Off"; });

at::Tensor bytes_on(int index, int64_t bytes) {
  return at::empty({bytes}, at::TensorOptions(device(index)).dtype(at::kByte));
}

TEST_P(MemoryTest, AddressesTellTheirDevice) {
  for (int index = 0; index < device_count(); ++index) {
    void* const memory = internal::allocate(100, index);
    EXPECT_EQ(internal::device_of_device_address(memory), index);
    EXPECT_EQ(internal::device_of_kernel_address(memory), -1);
    void* const kernel = internal::kernel_address(memory, index);
    EXPECT_EQ(internal::device_of_kernel_address(kernel), index);
    EXPECT_EQ(internal::device_of_device_address(kernel), -1);
    EXPECT_EQ(internal::device_address(kernel, index), memory);
    internal::release(memory);
  }
  int on_stack = 0;
  EXPECT_EQ(internal::device_of_device_address(&on_stack), -1);
  EXPECT_EQ(internal::device_of_device_address(nullptr), -1);
  EXPECT_EQ(internal::kernel_address(nullptr, 1), nullptr);
  EXPECT_EQ(internal::allocate(0, 1), nullptr);
}

// Every block keeps what was written to it while others come and go.
TEST_P(MemoryTest, BlocksNeverOverlap) {
  std::mt19937 random(3);
  std::map<char*, std::pair<size_t, char>> live;
  int64_t bytes_live = counters(1).live_bytes;
  for (int step = 0; step < 4000; ++step) {
    if (live.size() > 40 || (!live.empty() && random() % 2 == 0)) {
      auto block = live.begin();
      std::advance(block, random() % live.size());
      const auto [memory, content] = *block;
      const auto* const kernel = static_cast<char*>(internal::kernel_address(memory, 1));
      for (size_t i = 0; i < content.first; i += 61) {
        ASSERT_EQ(kernel[i], content.second) << "at byte " << i << " of " << content.first;
      }
      internal::release(memory);
      bytes_live -= static_cast<int64_t>(content.first);
      live.erase(block);
    } else {
      const size_t bytes = 1 + random() % (random() % 4 == 0 ? 100000 : 2000);
      auto* const memory = static_cast<char*>(internal::allocate(bytes, 1));
      ASSERT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0);
      const char content = static_cast<char>(random() % 127);
      std::memset(internal::kernel_address(memory, 1), content, bytes);
      live[memory] = {bytes, content};
      bytes_live += static_cast<int64_t>(bytes);
    }
    ASSERT_EQ(counters(1).live_bytes, bytes_live);
  }
  for (const auto& [memory, content] : live) {
    internal::release(memory);
  }
}

TEST_P(MemoryTest, OutOfMemoryNamesDeviceAskedAndFree) {
  const int64_t live = counters(2).live_bytes;
  const at::Tensor half = bytes_on(2, kMemory / 2);
  const std::string free = std::to_string(kMemory / 2 - live);
  EXPECT_THAT([] { bytes_on(2, kMemory / 2 + 1); },
              ThrowsError("[simdev] simdev:2 is out of memory: asked for 4194305 bytes, " + free +
                          " of 8388608 bytes are free"));
  EXPECT_THROW(bytes_on(2, kMemory), c10::OutOfMemoryError);
  EXPECT_EQ(counters(2).live_bytes, live + static_cast<int64_t>(kMemory / 2));
  EXPECT_EQ(bytes_on(1, kMemory / 2 + 1).numel(), static_cast<int64_t>(kMemory / 2 + 1));
}

TEST_P(MemoryTest, AllOfItCanBeUsedInPiecesOfAnySize) {
  for (const size_t piece : {size_t{5000}, kMemory / 8, size_t{300}, size_t{70000}, kMemory}) {
    std::vector<at::Tensor> pieces;
    for (size_t used = counters(3).live_bytes; used + piece <= kMemory; used += piece) {
      pieces.push_back(bytes_on(3, static_cast<int64_t>(piece)));
    }
    EXPECT_THROW(bytes_on(3, static_cast<int64_t>(piece)), c10::OutOfMemoryError) << piece;
  }
}

TEST_P(MemoryTest, CountersAreExact) {
  const at::Tensor before = bytes_on(0, 10);
  reset_counters();
  const int64_t live = counters(0).live_bytes;
  {
    const at::Tensor a = bytes_on(0, 1001);
    const at::Tensor b = bytes_on(0, 33);
    EXPECT_EQ(counters(0).live_bytes, live + 1034);
  }
  const at::Tensor c = bytes_on(0, 500);
  const Counters now = counters(0);
  EXPECT_EQ(now.live_bytes, live + 500);
  EXPECT_EQ(now.peak_bytes, live + 1034);
  EXPECT_EQ(now.allocations, 3);
  reset_counters();
  EXPECT_EQ(counters(0).live_bytes, live + 500);
  EXPECT_EQ(counters(0).peak_bytes, live + 500);
  EXPECT_EQ(counters(0).allocations, 0);
}

TEST_P(MemoryTest, LibTorchFindsTheAllocator) {
  auto* const allocator = c10::getDeviceAllocator(c10::DeviceType::PrivateUse1);
  const at::Tensor tensor = bytes_on(1, 1000);
  EXPECT_EQ(allocator->getMemoryInfo(1).second, kMemory);
  EXPECT_EQ(allocator->getMemoryInfo(1).first,
            kMemory - static_cast<size_t>(counters(1).live_bytes));
  EXPECT_EQ(allocator->getDeviceStats(1).allocated_bytes[0].current, counters(1).live_bytes);
  allocator->resetPeakStats(1);
  EXPECT_EQ(counters(1).peak_bytes, counters(1).live_bytes);
  EXPECT_GT(counters(1).allocations, 0);
  allocator->resetAccumulatedStats(1);
  EXPECT_EQ(counters(1).allocations, 0);
  allocator->emptyCache();
  EXPECT_EQ(at::TensorOptions(device(1)).device(), tensor.device());
}

TEST_P(MemoryTest, HostAllocationsLandOnTheDeviceWithinARedirectionOnly) {
  const int64_t live = counters(1).live_bytes;
  at::Tensor inside;
  {
    const internal::RedirectHostAllocations redirection(1);
    inside = at::empty({7}, at::kFloat);
  }
  EXPECT_EQ(internal::device_of_kernel_address(inside.data_ptr()), 1);
  EXPECT_EQ(counters(1).live_bytes, live + 28);
  const at::Tensor outside = at::empty({7}, at::kFloat);
  EXPECT_EQ(internal::device_of_kernel_address(outside.data_ptr()), -1);
  inside.reset();
  EXPECT_EQ(counters(1).live_bytes, live);
  // Raw memory may be freed outside the redirection.
  void* raw = nullptr;
  {
    const internal::RedirectHostAllocations redirection(1);
    raw = c10::GetAllocator(c10::kCPU)->raw_allocate(50);
  }
  c10::GetAllocator(c10::kCPU)->raw_deallocate(raw);
  EXPECT_EQ(counters(1).live_bytes, live);
}

TEST(BlockSizeTest, RoundsUpByAtMostAnEighthOrOneGranule) {
  for (size_t bytes = 1; bytes < 200000; bytes += 7) {
    const size_t size = internal::block_size(bytes);
    ASSERT_GE(size, bytes);
    ASSERT_EQ(size % internal::kGranule, 0);
    ASSERT_LE(size, bytes + bytes / 8 + internal::kGranule);
  }
}

TEST(MemoryDeathTest, SaysWhichDevicesMemoryTheHostRead) {
  const at::Tensor tensor = at::empty({10}, device(2));
  const volatile float* const data = static_cast<const float*>(tensor.const_data_ptr());
  EXPECT_DEATH(static_cast<void>(*data), "\\[simdev\\] the host (read|touched) memory of simdev:2");
}

TEST(MemoryDeathTest, SaysWhichDevicesMemoryTheHostWrote) {
  const at::Tensor tensor = at::empty({10}, device(3));
  volatile float* const data = static_cast<float*>(tensor.mutable_data_ptr());
  EXPECT_DEATH(*data = 1, "\\[simdev\\] the host (wrote|touched) memory of simdev:3");
}

TEST(MemoryDeathTest, LeavesOtherFaultsAsTheyWere) {
  volatile int* volatile nowhere = reinterpret_cast<int*>(8);
  EXPECT_DEATH(*nowhere = 1, ::testing::Not(::testing::HasSubstr("[simdev]")));
}

TEST(MemoryDeathTest, ChildOfForkHasNoDeviceMemory) {
  GTEST_FLAG_SET(death_test_style, "fast");  // forks
  EXPECT_DEATH(at::ones({10}, device(1)), "a child of fork\\(\\) used a simulated device");
  GTEST_FLAG_SET(death_test_style, "threadsafe");
}

TEST(WriteAfterFreeTest, IsThrownByTheNextLaunch) {
  auto* const memory = static_cast<char*>(internal::allocate(100, 1));
  internal::release(memory);
  static_cast<char*>(internal::kernel_address(memory, 1))[42] = 0;
  c10::getDeviceAllocator(c10::DeviceType::PrivateUse1)->emptyCache();
  EXPECT_TRUE(
      finds_fault([] { internal::launch("next", internal::current_stream_number(1)); },
                  {"memory was written after it was freed", "byte 42", "100 bytes of simdev:1"}));
  internal::launch("after that", internal::current_stream_number(1));
}

TEST(WriteAfterFreeTest, IsReportedByResetIfNothingIsLaunched) {
  auto* const memory = static_cast<char*>(internal::allocate(300000, 1));
  internal::release(memory);
  static_cast<char*>(internal::kernel_address(memory, 1))[299999] = 0;
  const std::vector<std::string> faults = reset();
  ASSERT_EQ(faults.size(), 1);
  EXPECT_NE(faults[0].find("byte 299999 of a block of 300000 bytes"), std::string::npos)
      << faults[0];
  internal::launch("next", internal::current_stream_number(1));
}

TEST(WriteAfterFreeTest, FreedMemoryReadsAsNotANumber) {
  auto* const memory = static_cast<float*>(internal::allocate(400, 1));
  auto* const kernel = static_cast<float*>(internal::kernel_address(memory, 1));
  std::fill_n(kernel, 100, 1.0F);
  internal::release(memory);
  EXPECT_NE(kernel[99], kernel[99]);
}

}  // namespace
}  // namespace lockstep::simdev
