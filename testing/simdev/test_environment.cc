// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/test_environment.h"

#include <gtest/gtest.h>

#include <string>

#include "testing/simdev/checker.h"

namespace lockstep::simdev {
namespace {

class Devices final : public ::testing::Environment {
 public:
  explicit Devices(const Options& options) : options_(options) {}
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    initialize(options_);
  }

 private:
  const Options options_;
};

class FaultListener final : public ::testing::EmptyTestEventListener {
 public:
  void OnTestEnd(const ::testing::TestInfo& /*test*/) override {
    for (const std::string& fault : reset()) {
      ADD_FAILURE() << "a fault that the test did not take: " << fault;
    }
  }
};

::testing::AssertionResult contains(const std::string& message,
                                    const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (message.find(part) == std::string::npos) {
      return ::testing::AssertionFailure() << "no '" << part << "' in the fault: " << message;
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace

bool use_in_tests(const Options& options) {
  // Both belong to GoogleTest from here on.
  ::testing::AddGlobalTestEnvironment(new Devices(options));
  ::testing::UnitTest::GetInstance()->listeners().Append(new FaultListener());
  return true;
}

::testing::AssertionResult finds_fault(const std::function<void()>& program,
                                       const std::vector<std::string>& parts) {
  try {
    program();
  } catch (const RaceError& error) {
    const std::vector<std::string> faults = take_reports();
    if (faults.size() != 1) {
      return ::testing::AssertionFailure() << "expected one fault, got " << faults.size();
    }
    return contains(error.what_without_backtrace(), parts);
  }
  return ::testing::AssertionFailure() << "nothing was thrown";
}

}  // namespace lockstep::simdev
