// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace fashion_mnist {
namespace {

using ::testing::HasSubstr;

std::string error_of(const std::string& text, int64_t num_cuda_devices) {
  try {
    parse_devices(text, num_cuda_devices);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ParseDevicesTest, TakesEveryCudaDeviceByDefault) {
  EXPECT_EQ(device_names(parse_devices("", 3)), "cuda:0,cuda:1,cuda:2");
}

TEST(ParseDevicesTest, TakesTwoCpuReplicasWithoutCuda) {
  EXPECT_EQ(device_names(parse_devices("", 0)), "cpu,cpu");
}

TEST(ParseDevicesTest, KeepsTheOrderOfTheList) {
  EXPECT_EQ(device_names(parse_devices("cpu,cpu,cpu", 2)), "cpu,cpu,cpu");
  EXPECT_EQ(device_names(parse_devices("cuda:1,cuda:0", 2)), "cuda:1,cuda:0");
  EXPECT_EQ(device_names(parse_devices("cuda:11", 12)), "cuda:11");
}

TEST(ParseDevicesTest, RejectsWhatIsNoDevice) {
  for (const char* text : {"gpu", "cuda", "cuda:", "cuda:x", "cuda:-1", "cuda:999", "cpu:0", "CPU",
                           "cpu,", ",", "cpu,,cpu", "cpu cpu", " cpu", "mps"}) {
    EXPECT_THAT(error_of(text, 1), HasSubstr("is not a device, expected cpu or cuda:N")) << text;
  }
  EXPECT_EQ(
      error_of("cpu,tpu", 0),
      "--devices=cpu,tpu: 'tpu' is not a device, expected cpu or cuda:N, separated by commas");
}

TEST(ParseDevicesTest, RejectsACudaDeviceThatIsNotThere) {
  EXPECT_EQ(error_of("cuda:0,cuda:1", 1),
            "--devices=cuda:0,cuda:1: cuda:1 is not there, this machine has 1 CUDA devices");
}

TEST(ParseDevicesTest, RejectsACudaDeviceNamedTwice) {
  EXPECT_THAT(error_of("cuda:0,cuda:0", 2), HasSubstr("cuda:0 is named twice"));
}

TEST(ParseDevicesTest, RejectsAMixedList) {
  EXPECT_THAT(error_of("cpu,cuda:0", 2), HasSubstr("mixes CPU and CUDA devices"));
}

}  // namespace
}  // namespace fashion_mnist
