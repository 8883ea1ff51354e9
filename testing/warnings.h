// SPDX-License-Identifier: Apache-2.0
// warnings.h: collects what TORCH_WARN says, so that a test can look at it.
//   Warnings warnings;
//   subject();
//   EXPECT_THAT(warnings.messages, ElementsAre(HasSubstr("scalars")));
#pragma once

#include <c10/util/Exception.h>

#include <string>
#include <vector>

namespace lockstep::testing {

// While it lives, this thread's warnings come here and nowhere else, also those that are given once
// per process. Must end on the thread that made it.
class Warnings : public c10::WarningHandler {
 public:
  Warnings();
  void process(const c10::Warning& warning) override;

  std::vector<std::string> messages;

 private:
  c10::WarningUtils::WarningHandlerGuard guard_;
  c10::WarningUtils::WarnAlways always_;
};

}  // namespace lockstep::testing
