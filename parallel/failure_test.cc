// SPDX-License-Identifier: Apache-2.0
#include "parallel/failure.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "testing/matchers.h"

namespace lockstep::parallel {
namespace {

using ::testing::HasSubstr;

template <class Exception>
std::exception_ptr as_pointer(Exception exception) {
  return std::make_exception_ptr(std::move(exception));
}

std::exception_ptr torch_error(const std::string& text) {
  try {
    TORCH_CHECK_VALUE(false, text);
  } catch (...) {
    return std::current_exception();
  }
}

std::vector<c10::Device> cpus(size_t count) {
  return std::vector<c10::Device>(count, c10::Device(c10::kCPU));
}

TEST(FailureTest, ThrowsNothingWhenNothingWasThrown) {
  internal::throw_first_failure({nullptr, nullptr}, cpus(2));
  internal::throw_first_failure({}, {});
}

TEST(FailureTest, ThreadsThatNeverFailedHaveNone) {
  bool has_failure = true;
  std::thread([&] { has_failure = last_failure().has_value(); }).join();
  EXPECT_FALSE(has_failure);
}

TEST(FailureTest, ATorchErrorKeepsItsTypeAndNamesReplicaAndDevice) {
  try {
    internal::throw_first_failure({nullptr, torch_error("odd value"), nullptr}, cpus(3));
    FAIL() << "nothing was thrown";
  } catch (const c10::ValueError& error) {
    EXPECT_THAT(error.what(), HasSubstr("odd value"));
    EXPECT_THAT(error.what(), HasSubstr("in replica 1 of 3 on cpu"));
  }
}

TEST(FailureTest, ATorchErrorIsTheSameObject) {
  const std::exception_ptr thrown = torch_error("odd value");
  const void* object = nullptr;
  try {
    std::rethrow_exception(thrown);
  } catch (const c10::Error& error) {
    object = &error;
  }
  try {
    internal::throw_first_failure({thrown}, cpus(1));
    FAIL() << "nothing was thrown";
  } catch (const c10::Error& error) {
    EXPECT_EQ(&error, object);
  }
}

TEST(FailureTest, OtherTypesAreUnchanged) {
  try {
    internal::throw_first_failure({as_pointer(std::out_of_range("beyond"))}, cpus(1));
    FAIL() << "nothing was thrown";
  } catch (const std::out_of_range& error) {
    EXPECT_STREQ(error.what(), "beyond");
  }
  try {
    internal::throw_first_failure({nullptr, as_pointer(42)}, cpus(2));
    FAIL() << "nothing was thrown";
  } catch (int value) {
    EXPECT_EQ(value, 42);
  }
  EXPECT_EQ(last_failure()->message, "int");
}

TEST(FailureTest, TheLowestReplicaIsThrownAndTheOthersAreListed) {
  EXPECT_THROW(internal::throw_first_failure({nullptr, as_pointer(std::logic_error("one")),
                                              as_pointer(2.5), torch_error("three")},
                                             cpus(4)),
               std::logic_error);
  ASSERT_TRUE(last_failure().has_value());
  const Failure& failure = *last_failure();
  EXPECT_EQ(failure.replica, 1);
  EXPECT_EQ(failure.device, c10::Device(c10::kCPU));
  EXPECT_EQ(failure.message, "one");
  ASSERT_EQ(failure.others.size(), 2u);
  EXPECT_EQ(failure.others[0].replica, 2);
  EXPECT_EQ(failure.others[0].message, "double");
  EXPECT_EQ(failure.others[1].replica, 3);
  EXPECT_EQ(failure.others[1].device, c10::Device(c10::kCPU));
  EXPECT_THAT(failure.others[1].message, HasSubstr("three"));
}

TEST(FailureTest, EachThreadHasItsOwn) {
  EXPECT_THROW(internal::throw_first_failure({as_pointer(std::logic_error("mine"))}, cpus(1)),
               std::logic_error);
  std::thread([] {
    EXPECT_THROW(internal::throw_first_failure({as_pointer(std::logic_error("other"))}, cpus(1)),
                 std::logic_error);
    EXPECT_EQ(last_failure()->message, "other");
  }).join();
  EXPECT_EQ(last_failure()->message, "mine");
}

}  // namespace
}  // namespace lockstep::parallel
