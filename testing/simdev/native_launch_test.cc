// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/native_launch.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "testing/matchers.h"
#include "testing/simdev/checker.h"
#include "testing/simdev/counters.h"
#include "testing/simdev/stream_test_util.h"
#include "testing/simdev/test_environment.h"

namespace lockstep::simdev {
namespace {

using lockstep::testing::ThrowsError;

const bool kDevicesInUse = use_in_tests();

const char* bytes(const at::Tensor& tensor) { return static_cast<const char*>(tensor.data_ptr()); }

TEST(NativeMemoryTest, IsWhereAKernelFindsTheTensor) {
  const at::Tensor tensor = at::full({4}, 2.5f, device(1));
  const std::optional<NativeMemory> memory = native_memory(bytes(tensor) + 4);
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory->device, 1);
  EXPECT_EQ(memory->bytes, 12);
  float value = 0;
  std::memcpy(&value, memory->host_address, sizeof(value));
  EXPECT_EQ(value, 2.5f);
}

TEST(NativeMemoryTest, IsNoneOutsideOfLiveAllocations) {
  const char* freed = nullptr;
  {
    const at::Tensor tensor = at::ones({4}, device(1));
    freed = bytes(tensor);
    EXPECT_FALSE(native_memory(bytes(tensor) + 16).has_value());
    EXPECT_TRUE(native_memory(freed).has_value());
  }
  const at::Tensor host = at::ones({4});
  EXPECT_FALSE(native_memory(freed).has_value());
  EXPECT_FALSE(native_memory(host.data_ptr()).has_value());
  EXPECT_FALSE(native_memory(nullptr).has_value());
}

TEST(StreamOfNativeHandleTest, IsTheInverseOfNativeHandle) {
  const c10::Stream stream = side_stream(2);
  EXPECT_EQ(stream_of_native_handle(stream.native_handle()), stream);
  EXPECT_EQ(stream_of_native_handle(nullptr), std::nullopt);
  int no_stream = 0;
  EXPECT_EQ(stream_of_native_handle(&no_stream), std::nullopt);
}

TEST(NativeLaunchTest, CountsAsAKernelOfTheStreamsDevice) {
  const c10::Stream stream = default_stream(1);
  const auto before = counters(1).kernels;
  count_operators(true);
  native_launch(stream, "own kernel", {});
  count_operators(false);
  EXPECT_EQ(counters(1).kernels, before + 1);
  EXPECT_EQ(operator_counts()["own kernel"], 1);
}

TEST(NativeLaunchTest, IsOrderedLikeAnOperator) {
  const at::Tensor tensor = at::ones({4}, device(1));
  const c10::Stream other = side_stream(1);
  const NativeAccess read = {tensor.data_ptr(), 16, /*write=*/false};
  native_launch(default_stream(1), "own kernel", read);
  EXPECT_TRUE(finds_fault(
      [&] { native_launch(other, "own kernel", read); },
      {"'own kernel' on stream", "reads Byte[16], bytes [0, 16)", "'aten::fill_.Scalar'"}));
  order(default_stream(1), other);
  native_launch(other, "own kernel", read);
}

TEST(NativeLaunchTest, IsSeenByOperators) {
  const at::Tensor tensor = at::ones({8}, device(1));
  const c10::Stream other = side_stream(1);
  order(default_stream(1), other);
  native_launch(other, "own kernel", NativeAccess{bytes(tensor), 16, /*write=*/true});
  tensor.slice(0, 4, 8).fill_(2);
  EXPECT_TRUE(finds_fault([&] { tensor.slice(0, 0, 4).fill_(2); },
                          {"'own kernel' on stream", "wrote Byte[16]"}));
}

TEST(NativeLaunchTest, FindsMemoryThatIsNotLive) {
  const void* freed = at::ones({4}, device(1)).data_ptr();
  EXPECT_TRUE(finds_fault(
      [&] {
        native_launch(default_stream(1), "own kernel", NativeAccess{freed, 16, false});
      },
      {"memory is used after it was freed", "'own kernel'"}));
}

TEST(NativeLaunchTest, RefusesWhatIsNoMemoryOfADevice) {
  const at::Tensor host = at::ones({4}), tensor = at::ones({4}, device(1));
  EXPECT_THAT(
      [&] {
        native_launch(default_stream(1), "own kernel", NativeAccess{host.data_ptr(), 16, false});
      },
      ThrowsError("expected 'own kernel' to get memory of a device"));
  EXPECT_THAT(
      [&] {
        native_launch(default_stream(1), "own kernel", NativeAccess{tensor.data_ptr(), 17, false});
      },
      ThrowsError("to stay inside an allocation of simdev:1, got 17 bytes where 16 are left"));
  EXPECT_THAT(
      [&] {
        native_launch(c10::Stream(c10::Stream::DEFAULT, c10::Device(c10::kCPU)), "own kernel", {});
      },
      ThrowsError("expected a stream of a simulated device"));
}

TEST(NativeOrderTest, RefusesStreamsOfSomethingElse) {
  const c10::Stream host(c10::Stream::DEFAULT, c10::Device(c10::kCPU));
  const c10::Stream ours = guard().getStream(device(0));
  EXPECT_THAT([&] { native_order(host, ours); }, ThrowsError("expected streams of simulated"));
  EXPECT_THAT([&] { native_order(ours, host); }, ThrowsError("expected streams of simulated"));
}

TEST(NativeOrderTest, OrdersWithoutAnEvent) {
  const at::Tensor tensor = at::ones({4}, device(1));
  const c10::Stream other = side_stream(2);
  const auto before = counters(1).events_recorded;
  native_order(default_stream(1), other);
  native_launch(other, "own kernel", NativeAccess{tensor.data_ptr(), 16, true});
  EXPECT_EQ(counters(1).events_recorded, before);
}

}  // namespace
}  // namespace lockstep::simdev
