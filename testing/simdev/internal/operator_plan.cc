// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/operator_plan.h"

#include <ATen/core/function_schema.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

namespace lockstep::simdev::internal {
namespace {

// CUDA's kernels wait here too, and programs may rely on it.
bool host_waits_for(const std::string& name) {
  static const std::set<std::string> names = {"aten::_local_scalar_dense",
                                              "aten::bincount",
                                              "aten::_coalesce",
                                              "aten::equal",
                                              "aten::masked_select",
                                              "aten::nonzero",
                                              "aten::repeat_interleave",
                                              "aten::_to_sparse",
                                              "aten::_unique",
                                              "aten::_unique2",
                                              "aten::unique_consecutive",
                                              "aten::unique_dim",
                                              "aten::unique_dim_consecutive"};
  return names.count(name) != 0;
}

// CUDA moves indices that are on the host.
bool takes_host_indices(const std::string& name) {
  static const std::set<std::string> names = {"aten::index",         "aten::index_put",
                                              "aten::index_put_",    "aten::_index_put_impl_",
                                              "aten::_unsafe_index", "aten::_unsafe_index_put"};
  return names.count(name) != 0;
}

bool is_metadata_only(const std::string& name) {
  static const std::set<std::string> names = {"aten::is_set_to", "aten::resize_as_sparse_",
                                              "aten::sparse_resize_"};
  return names.count(name) != 0;
}

bool writes(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// Unmarked in the schema, since only training writes them.
bool is_running_statistic(const std::string& name, const c10::Argument& argument) {
  return name == "aten::native_batch_norm" &&
         (argument.name() == "running_mean" || argument.name() == "running_var");
}

bool is_view(const c10::FunctionSchema& schema) {
  bool aliases = false;
  for (const c10::Argument& argument : schema.arguments()) {
    if (writes(argument)) {
      return false;
    }
  }
  for (const c10::Argument& result : schema.returns()) {
    aliases |= result.alias_info() != nullptr;
  }
  return aliases;
}

std::optional<ArgumentKind> kind_of(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::OptionalType:
    case c10::TypeKind::ListType:
      return kind_of(type->containedType(0));
    case c10::TypeKind::TensorType:
      return ArgumentKind::kTensors;
    case c10::TypeKind::DeviceObjType:
      return ArgumentKind::kDevice;
    case c10::TypeKind::GeneratorType:
      return ArgumentKind::kGenerator;
    default:
      return std::nullopt;
  }
}

std::unique_ptr<OperatorPlan> make_plan(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  auto plan = std::make_unique<OperatorPlan>(op.operator_name());
  plan->name = c10::toString(op.operator_name());
  plan->argument_count = schema.arguments().size();
  plan->return_count = schema.returns().size();
  const std::string& name = plan->id.name;
  plan->host_waits = host_waits_for(name);
  if (is_view(schema) || is_metadata_only(name)) {
    plan->effect = Effect::kMetadata;
  }
  for (const c10::Argument& argument : schema.arguments()) {
    plan->argument_names.push_back(argument.name());
  }
  for (size_t i = 0; i < plan->argument_count; ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (const auto kind = kind_of(argument.type())) {
      const bool on_host = takes_host_indices(name) && argument.name() == "indices";
      const int written_if =
          is_running_statistic(name, argument) ? *schema.argumentIndexWithName("training") : -1;
      plan->arguments.push_back(
          {i, *kind, {plan->argument_names[i].c_str(), writes(argument), on_host}, written_if});
    }
  }
  return plan;
}

void check_runnable(const c10::OperatorHandle& op, c10::DispatchKey host_key) {
  TORCH_CHECK_NOT_IMPLEMENTED(op.hasComputedKernelForDispatchKey(host_key), "[",
                              c10::toString(op.operator_name()), "] expected a kernel for ",
                              c10::toString(host_key),
                              ", which simulated devices run operators by, got none");
}

// Plans outlive all threads: nothing destroys them.
const OperatorPlan& shared_plan(const c10::OperatorHandle& op, c10::DispatchKey host_key) {
  static auto& mutex = *new std::mutex;
  static auto& plans = *new std::map<std::string, std::unique_ptr<OperatorPlan>>;
  check_runnable(op, host_key);
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<OperatorPlan>& plan = plans[c10::toString(op.operator_name())];
  if (plan == nullptr) {
    plan = make_plan(op);
  }
  return *plan;
}

}  // namespace

const OperatorPlan& plan_of(const c10::OperatorHandle& op, c10::DispatchKey host_key) {
  struct Slot {
    const c10::FunctionSchema* schema = nullptr;
    c10::DispatchKey host_key = c10::DispatchKey::Undefined;
    const OperatorPlan* plan = nullptr;
  };
  constexpr size_t kSlots = 512;
  thread_local std::array<Slot, kSlots> slots;
  const c10::FunctionSchema* schema = &op.schema();
  Slot& slot = slots[(reinterpret_cast<uintptr_t>(schema) >> 6U) % kSlots];
  // The name too: another operator may have been registered where this one was.
  if (slot.schema != schema || slot.host_key != host_key ||
      !(slot.plan->id == op.operator_name())) {
    slot = {schema, host_key, &shared_plan(op, host_key)};
  }
  return *slot.plan;
}

}  // namespace lockstep::simdev::internal
