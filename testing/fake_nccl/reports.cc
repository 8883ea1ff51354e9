// SPDX-License-Identifier: Apache-2.0
#include "testing/fake_nccl/reports.h"

#include <utility>

namespace lockstep::fake_nccl::internal {
namespace {

struct Texts {
  std::string reports;
  std::string last_error;
};

Texts& texts() {
  static auto* const all = new Texts();
  return *all;
}

}  // namespace

void report(const std::string& line) { texts().reports += "[fake_nccl] " + line + "\n"; }

Result refuse(Result result, const std::string& line) {
  report(line);
  return fail(result, line);
}

Result fail(Result result, const std::string& text) {
  texts().last_error = text;
  return result;
}

const std::string& last_error() { return texts().last_error; }

std::string take_reports() { return std::exchange(texts().reports, {}); }

}  // namespace lockstep::fake_nccl::internal
