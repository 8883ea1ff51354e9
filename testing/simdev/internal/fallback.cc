// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/fallback.h"

#include <ATen/core/Generator.h>
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <optional>
#include <utility>

#include "testing/simdev/internal/generator.h"
#include "testing/simdev/internal/kernel_call.h"
#include "testing/simdev/internal/operator_plan.h"
#include "testing/simdev/internal/ordering.h"

namespace lockstep::simdev::internal {
namespace {

using c10::IValue;

bool is_of_a_device(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == c10::DeviceType::PrivateUse1;
}

bool is_list_of_tensors(const IValue& value) {
  return value.isTensorList() || value.isOptionalTensorList();
}

// The first device found in the argument, or -1.
int device_in(const IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    return is_of_a_device(tensor) ? tensor.device().index() : -1;
  }
  if (is_list_of_tensors(value)) {
    for (const IValue& element : value.toListRef()) {
      const int device = device_in(element);
      if (device >= 0) {
        return device;
      }
    }
  }
  return -1;
}

// First of all, so that a host tensor ahead of it is reported with the device it should be on.
void choose_device(const OperatorPlan& plan, const IValue* values, KernelCall& call) {
  for (const PlannedArgument& argument : plan.arguments) {
    if (argument.kind == ArgumentKind::kTensors) {
      const int device = device_in(values[argument.position]);
      if (device >= 0) {
        call.run_on(device, argument.operand.name);
        return;
      }
    }
  }
}

// Of a list of tensors or of optional ones; elements without a tensor stay so.
template <class Element>
c10::List<Element> aliases_of(const IValue& list, const Operand& operand, KernelCall& call) {
  c10::List<Element> aliases;
  aliases.reserve(list.toListRef().size());
  for (const IValue& element : list.toListRef()) {
    aliases.push_back(element.isNone() ? Element()
                                       : Element(call.alias(element.toTensor(), operand)));
  }
  return aliases;
}

void alias_tensors(IValue& value, const Operand& operand, KernelCall& call) {
  if (value.isTensor()) {
    value = call.alias(value.toTensor(), operand);
  } else if (value.isTensorList()) {
    value = aliases_of<at::Tensor>(value, operand, call);
  } else if (value.isOptionalTensorList()) {
    value = aliases_of<std::optional<at::Tensor>>(value, operand, call);
  }
}

Operand operand_of(const PlannedArgument& argument, const IValue* values) {
  Operand operand = argument.operand;
  operand.written |= argument.written_if >= 0 && values[argument.written_if].toBool();
  return operand;
}

void replace_device(IValue& value, const Operand& operand, KernelCall& call) {
  if (value.isDevice() && value.toDevice().type() == c10::DeviceType::PrivateUse1) {
    const c10::Device device = value.toDevice();
    call.run_on(device.has_index() ? device.index() : current_device(), operand.name);
    value = c10::Device(c10::kCPU);
  }
}

void replace_generator(IValue& value, const OperatorPlan& plan, int device) {
  if (value.isNone()) {
    value = host_generator(default_generator(device));
    return;
  }
  const at::Generator& generator = value.toGenerator();
  if (!generator.defined()) {
    value = host_generator(default_generator(device));
    return;
  }
  TORCH_CHECK(generator.device().type() == c10::DeviceType::PrivateUse1, "[", plan.name,
              "] expected a generator of simdev:", device, ", got one of ", generator.device());
  value = host_generator(generator);
}

void results_to_device(IValue* values, size_t count, KernelCall& call) {
  for (size_t i = 0; i < count; ++i) {
    if (values[i].isTensor()) {
      values[i] = call.result(values[i].toTensor());
    } else if (values[i].isTensorList()) {
      c10::List<at::Tensor> tensors;
      for (const IValue& tensor : values[i].toListRef()) {
        tensors.push_back(call.result(tensor.toTensor()));
      }
      values[i] = std::move(tensors);
    }
  }
}

template <c10::DispatchKey host_key>
void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const OperatorPlan& plan = plan_of(op, host_key);
  KernelCall call(plan.name.c_str(), plan.effect);
  IValue* values = stack->data() + (stack->size() - plan.argument_count);
  choose_device(plan, values, call);
  bool draws = false;
  for (const PlannedArgument& argument : plan.arguments) {
    IValue& value = values[argument.position];
    switch (argument.kind) {
      case ArgumentKind::kTensors:
        alias_tensors(value, operand_of(argument, values), call);
        break;
      case ArgumentKind::kDevice:
        replace_device(value, argument.operand, call);
        break;
      case ArgumentKind::kGenerator:
        draws = true;
        break;
    }
  }
  {
    const KernelBody running = call.launch();
    if (draws) {
      for (const PlannedArgument& argument : plan.arguments) {
        if (argument.kind == ArgumentKind::kGenerator) {
          replace_generator(values[argument.position], plan, call.device());
        }
      }
    }
    op.redispatchBoxed(c10::DispatchKeySet(host_key), stack);
  }
  call.write_back();
  results_to_device(stack->data() + (stack->size() - plan.return_count), plan.return_count, call);
  if (plan.host_waits) {
    synchronize_host(current_stream_number(call.device()));
  }
}

}  // namespace

void register_fallback(torch::Library& dense, torch::Library& sparse) {
  dense.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host<c10::DispatchKey::CPU>>());
  sparse.fallback(
      torch::CppFunction::makeFromBoxedFunction<&run_on_host<c10::DispatchKey::SparseCPU>>());
}

}  // namespace lockstep::simdev::internal
