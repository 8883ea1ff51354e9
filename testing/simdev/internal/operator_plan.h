// SPDX-License-Identifier: Apache-2.0
// operator_plan.h: what the fallback must know of an operator, read from its schema once.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DispatchKey.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "testing/simdev/internal/kernel_call.h"

namespace lockstep::simdev::internal {

enum class ArgumentKind { kTensors, kDevice, kGenerator };  // one tensor or a list of them

// An argument that the fallback has to replace.
struct PlannedArgument {
  size_t position;
  ArgumentKind kind;
  Operand operand;
  int written_if = -1;  // the position of a flag that makes the argument a written one
};

struct OperatorPlan {
  explicit OperatorPlan(c10::OperatorName operator_name) : id(std::move(operator_name)) {}

  c10::OperatorName id;
  std::string name;  // "aten::add.out"
  size_t argument_count = 0, return_count = 0;
  std::vector<std::string> argument_names;
  std::vector<PlannedArgument> arguments;
  Effect effect = Effect::kAccess;
  // The host waits for the result, since its size depends on data or the host gets it.
  bool host_waits = false;
};

// Lives for ever.
// Throws: c10::Error if no CPU kernel of that key can run the operator.
// Threads: safe; no lock for an operator that the thread met before.
const OperatorPlan& plan_of(const c10::OperatorHandle& op, c10::DispatchKey host_key);

}  // namespace lockstep::simdev::internal
