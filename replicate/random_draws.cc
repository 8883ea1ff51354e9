// SPDX-License-Identifier: Apache-2.0
#include "replicate/random_draws.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "comm/device_list.h"
#include "replicate/seeded_generators.h"

namespace lockstep::replicate::internal {
namespace {

// Note [Intercepted Draws]
// Layers such as Dropout take no generator, and LibTorch has no generator per thread. But nearly
// every operator that draws has an argument for one. So each gets a kernel under a dispatch key that
// nothing but our scopes switches on, for their thread; the kernel fills in the argument and passes
// on. All other operators have a fallthrough there, which costs nothing.
// The key is one that LibTorch keeps for its own tests: its product code does not use it, and it
// comes before autograd and autocast. A PrivateUse key would be a device's, a new one cannot be
// had, and a TorchDispatchMode is Python's. Should a later LibTorch drop or use the key, the check
// at first use says so.
// LibTorch copies a thread's keys to other threads (ThreadLocalState: the autograd threads of
// accelerators, at::launch, our WorkerPool), but not our rule: there the kernel changes nothing.
// Registering writes to each operator's table while other threads may read other entries of it,
// as the loading of any library with operators does.

//
// A program may hold several copies of this library, each in a shared object of its own, but a key
// has one set of kernels. The copy that comes first registers them; the others find it by an
// operator that says where its rule of a thread is kept, and put their rules there.

thread_local DrawRule* current_rule = nullptr;

// Where a thread's rule is kept that the kernels go by.
using Slot = DrawRule** (*)();
DrawRule** own_slot() { return &current_rule; }
std::atomic<Slot> slot{&own_slot};

// The number is that of DrawRule's layout.
const c10::OperatorName kSlotOperator("lockstep::draw_rule_slot_1", "");

void push_own_slot(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) {
  torch::jit::push(*stack, static_cast<int64_t>(reinterpret_cast<intptr_t>(&own_slot)));
}

// That of the copy which has registered the kernels, or null.
Slot find_slot() {
  const auto op = c10::Dispatcher::singleton().findSchema(kSlotOperator);
  if (!op.has_value()) {
    return nullptr;
  }
  torch::jit::Stack stack;
  op->callBoxed(stack);
  return reinterpret_cast<Slot>(static_cast<intptr_t>(torch::jit::pop(stack).toInt()));
}

// Kernels must stay where they are: other copies use them when this one's program part is gone.
void keep_loaded() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&own_slot), &info) != 0) {
    dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
  }
}

constexpr const char* kFusedDropout = "aten::native_dropout";

constexpr c10::DispatchKeySet kKeysBelow(c10::DispatchKeySet::FULL_AFTER, kDrawKey);

bool is_optional_of(const c10::Argument& argument, c10::TypeKind kind) {
  const auto* const optional = argument.type()->castRaw<c10::OptionalType>();
  return optional != nullptr && optional->getElementType()->kind() == kind;
}

bool has_generator_argument(const c10::FunctionSchema& schema) {
  for (const c10::Argument& argument : schema.arguments()) {
    if (is_optional_of(argument, c10::TypeKind::GeneratorType)) {
      return true;
    }
  }
  return false;
}

c10::Device normalized(c10::Device device) {
  return device.is_cpu()      ? c10::Device(c10::kCPU)
         : device.has_index() ? device
                              : comm::normalize_device("replicate", device);
}

// Where an operator draws: as its `device` argument says, else where its first tensor is.
c10::Device device_of(c10::ArrayRef<c10::IValue> arguments) {
  std::optional<c10::Device> of_tensor;
  for (const c10::IValue& argument : arguments) {
    if (argument.isDevice()) {
      return normalized(argument.toDevice());
    }
    if (!of_tensor.has_value() && argument.isTensor() && argument.toTensor().defined()) {
      of_tensor = argument.toTensor().device();
    }
  }
  return normalized(of_tensor.value_or(c10::Device(c10::kCPU)));
}

void put_generator(DrawRule& rule, const c10::FunctionSchema& schema, torch::jit::Stack& stack) {
  const auto& arguments = schema.arguments();
  const size_t first = stack.size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!is_optional_of(arguments[i], c10::TypeKind::GeneratorType)) {
      continue;
    }
    c10::IValue& given = stack[first + i];
    // An undefined generator means none too, but could not be taken off the stack again.
    const bool is_given = given.isGenerator() && given.isPtrType();
    if (is_given && !rule.replaces_given()) {
      continue;
    }
    at::Generator generator =
        rule.generator_for(is_given ? normalized(given.toGenerator().device())
                                    : device_of(torch::jit::last(stack, arguments.size())));
    if (generator.defined()) {
      given = std::move(generator);
    } else if (!is_given) {
      given = c10::IValue();
    }
  }
}

void draw(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (current_rule != nullptr) {
    put_generator(*current_rule, op.schema(), *stack);
  }
  op.redispatchBoxed(keys & kKeysBelow, stack);
}

// For the operators of kFilling: the result is the first argument.
void fill(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const size_t num_arguments = op.schema().arguments().size();
  if (current_rule != nullptr &&
      current_rule->leaves(torch::jit::peek(*stack, 0, num_arguments).toTensor())) {
    torch::jit::drop(*stack, num_arguments - 1);
    return;
  }
  draw(op, keys, stack);
}

// For native_dropout(input, p, train), which takes no generator: the same from operators that do.
void drop_out(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  constexpr size_t kNumArguments = 3;
  const at::Tensor input = torch::jit::peek(*stack, 0, kNumArguments).toTensor();
  const double p = torch::jit::peek(*stack, 1, kNumArguments).toDouble();
  const bool train = torch::jit::peek(*stack, 2, kNumArguments).toOptional<bool>().value_or(true);
  if (current_rule == nullptr || !train ||
      !current_rule->generator_for(normalized(input.device())).defined()) {
    op.redispatchBoxed(keys & kKeysBelow, stack);
    return;
  }
  const at::Tensor mask = at::empty_like(input, at::TensorOptions(at::kBool)).bernoulli_(1 - p);
  at::Tensor output = input.mul(mask).mul_(p < 1 ? 1 / (1 - p) : 0);
  torch::jit::drop(*stack, kNumArguments);
  torch::jit::push(*stack, std::move(output), mask);
}

// They overwrite all of their tensor, whatever was in it.
bool is_filling(const std::string& name) {
  static const auto* const names = new std::unordered_set<std::string>{
      "aten::bernoulli_",  "aten::cauchy_", "aten::exponential_", "aten::geometric_",
      "aten::log_normal_", "aten::normal_", "aten::random_",      "aten::uniform_"};
  return names->count(name) > 0;
}

c10::KernelFunction kernel_for(const c10::FunctionSchema& schema) {
  return schema.name() == kFusedDropout ? c10::KernelFunction::makeFromBoxedFunction<&drop_out>()
         : is_filling(schema.name())    ? c10::KernelFunction::makeFromBoxedFunction<&fill>()
                                        : c10::KernelFunction::makeFromBoxedFunction<&draw>();
}

// Registered as long as it lives.
class Kernels {
 public:
  Kernels() {
    auto& dispatcher = c10::Dispatcher::singleton();
    TORCH_CHECK(!dispatcher.hasBackendFallbackForDispatchKey(kDrawKey),
                "[replicate] cannot intercept random draws: something else in this program, maybe "
                "another version of lockstep, uses LibTorch's dispatch key ",
                c10::toString(kDrawKey));
    constexpr const char* kWho = "lockstep: a thread's random draws";
    keep_loaded();
    handles_.push_back(
        dispatcher.registerDef(c10::FunctionSchema(kSlotOperator.name, kSlotOperator.overload_name,
                                                   {}, {c10::Argument("", c10::IntType::get())}),
                               kWho));
    handles_.push_back(dispatcher.registerImpl(
        kSlotOperator, c10::DispatchKey::CompositeImplicitAutograd,
        c10::KernelFunction::makeFromBoxedFunction<&push_own_slot>(), std::nullopt, nullptr, kWho));
    handles_.push_back(
        dispatcher.registerFallback(kDrawKey, c10::KernelFunction::makeFallthrough(), kWho));
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      const auto op = dispatcher.findSchema(name);
      if (name.name.rfind("aten::", 0) != 0 || !op.has_value() ||
          !(has_generator_argument(op->schema()) || name.name == kFusedDropout)) {
        continue;
      }
      handles_.push_back(dispatcher.registerImpl(name, kDrawKey, kernel_for(op->schema()),
                                                 std::nullopt, nullptr, kWho));
    }
  }

 private:
  std::vector<c10::RegistrationHandleRAII> handles_;
};

struct Probe final : DrawRule {
  at::Generator generator_for(c10::Device device) override {
    ++num_asked;
    return scratch.on(device);
  }
  int num_asked = 0;
  SeededGenerators scratch;
};

}  // namespace

bool DrawRule::leaves(const at::Tensor& /*tensor*/) { return false; }

DrawRule* DrawRuleScope::current() { return *slot.load()(); }

DrawRuleScope::DrawRuleScope(DrawRule& rule, Installed /*installed*/)
    : outer_(std::exchange(*slot.load()(), &rule)), key_(kDrawKey) {}

DrawRuleScope::~DrawRuleScope() { *slot.load()() = outer_; }

DrawRuleScope::Installed DrawRuleScope::installed() {
  // Not at the start of the program, when LibTorch's operators may not be there yet; and never
  // undone, as other threads may draw while the program ends.
  static const Kernels* const kernels = [] {
    const Slot others = find_slot();
    if (others != nullptr) {
      slot = others;
    }
    auto registered = others == nullptr ? std::make_unique<const Kernels>() : nullptr;
    check_interception();
    return registered.release();
  }();
  static_cast<void>(kernels);
  return {};
}

void DrawRuleScope::check_interception() {
  Probe probe;
  const at::Tensor tensor = at::empty({1});
  {
    const DrawRuleScope scope(probe, Installed{});
    tensor.uniform_();
    tensor.neg_();
  }
  tensor.uniform_(0, 1, probe.scratch.on(c10::kCPU));
  TORCH_CHECK(probe.num_asked == 1, "[replicate] cannot intercept random draws: LibTorch's ",
              "dispatch key ", c10::toString(kDrawKey), " does not do what it did in 2.11; in a ",
              "trial that was to ask for a generator once, one was asked for ", probe.num_asked,
              " times");
}

}  // namespace lockstep::replicate::internal
