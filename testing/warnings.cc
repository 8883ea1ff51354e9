// SPDX-License-Identifier: Apache-2.0
#include "testing/warnings.h"

namespace lockstep::testing {

Warnings::Warnings() : guard_(this), always_(true) {}

void Warnings::process(const c10::Warning& warning) { messages.push_back(warning.msg()); }

}  // namespace lockstep::testing
