// SPDX-License-Identifier: Apache-2.0
// reports.h: rules that the caller broke, and the text of the last error.
#pragma once

#include <string>

#include "testing/fake_nccl/types.h"

namespace lockstep::fake_nccl::internal {

// Notes a broken rule.
void report(const std::string& line);

// A call is answered with `result` because of a broken rule, which is noted.
Result refuse(Result result, const std::string& line);

// A call is answered with `result`, and no rule is broken.
Result fail(Result result, const std::string& text);

const std::string& last_error();

// The lines so far, each ended, and forgets them.
std::string take_reports();

}  // namespace lockstep::fake_nccl::internal
