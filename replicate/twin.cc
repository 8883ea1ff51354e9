// SPDX-License-Identifier: Apache-2.0
#include "replicate/twin.h"

#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>
#include <torch/nn/modules/container/parameterdict.h>
#include <torch/nn/modules/container/parameterlist.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "replicate/no_draws_scope.h"

namespace lockstep::replicate::internal {
namespace {

using torch::nn::Module;
using NamedTensors = torch::OrderedDict<std::string, at::Tensor>;

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

bool mentions(const c10::Error& error, const char* text) {
  return std::string(error.what_without_backtrace()).find(text) != std::string::npos;
}

// What clone() says of a type that has none, and of one whose reset() registers too little.
constexpr const char* kNoClone = "clone() has not been implemented";
constexpr const char* kTooFew = "after calling reset()";

[[noreturn]] void report_no_clone(const Module& module, const std::string& place) {
  TORCH_CHECK(false, "[replicate] cannot copy ", place, ": its type ", module.name(),
              " has no clone(). Either derive it from torch::nn::Cloneable<", module.name(),
              "> and register everything in reset(), or derive it from "
              "lockstep::replicate::Replicatable and return an empty twin from make_replica(), or "
              "pass ReplicateOptions::factory, a function that makes an empty twin.");
}

[[noreturn]] void report_too_few(const Module& module, const std::string& place) {
  const bool list = dynamic_cast<const torch::nn::ParameterListImpl*>(&module) != nullptr;
  const bool dict = dynamic_cast<const torch::nn::ParameterDictImpl*>(&module) != nullptr;
  const char* const container = list ? "ParameterList" : "ParameterDict";
  TORCH_CHECK(!list && !dict, "[replicate] cannot copy ", place, " of type torch::nn::", container,
              ": LibTorch's clone() loses its entries (",
              join(module.named_parameters(false).keys()),
              "); use lockstep::replicate::", container,
              " (replicate/parameter_containers.h), which is the same but for that");
  std::vector<std::string> names = module.named_parameters(false).keys();
  for (const std::string& name : module.named_buffers(false).keys()) {
    names.push_back(name);
  }
  for (const std::string& name : module.named_children().keys()) {
    names.push_back(name);
  }
  TORCH_CHECK(false, "[replicate] cannot copy ", place, " of type ", module.name(),
              ": its reset() does not register all that the module holds (", join(names),
              "). clone() calls reset() on an empty copy, so each of these must be registered in "
              "reset() and not in the constructor or later; or pass ReplicateOptions::factory.");
}

// clone() says what is wrong, but not where: ask the children one by one.
[[noreturn]] void explain_failed_clone(const Module& module, const std::string& path,
                                       const c10::Error& error) {
  for (const auto& child : module.named_children()) {
    try {
      child.value()->clone();
    } catch (const c10::Error& inner) {
      // A child that has no clone() does no harm where the parent's reset() makes it.
      if (mentions(inner, kNoClone) && !mentions(error, kNoClone)) {
        continue;
      }
      explain_failed_clone(*child.value(), path.empty() ? child.key() : path + "." + child.key(),
                           inner);
    }
  }
  const std::string place = path.empty() ? "the module" : "the submodule '" + path + "'";
  if (mentions(error, kNoClone)) {
    report_no_clone(module, place);
  }
  if (mentions(error, kTooFew)) {
    report_too_few(module, place);
  }
  throw;
}

std::shared_ptr<Module> clone_module(const Module& original, c10::Device device) {
  try {
    return original.clone(device);
  } catch (const c10::Error& error) {
    explain_failed_clone(original, "", error);
  }
}

std::shared_ptr<Module> make_module(const std::shared_ptr<Module>& original, c10::Device device,
                                    const ReplicateOptions& options) {
  std::shared_ptr<Module> twin;
  if (options.factory) {
    twin = options.factory();
    TORCH_CHECK(twin != nullptr, "[replicate] ReplicateOptions::factory returned null for a ",
                original->name());
  } else if (const auto* replicatable = dynamic_cast<const Replicatable*>(original.get())) {
    twin = replicatable->make_replica();
    TORCH_CHECK(twin != nullptr, "[replicate] make_replica() of ", original->name(),
                " returned null");
  } else {
    return clone_module(*original, device);
  }
  twin->to(device);
  return twin;
}

class Pairing {
 public:
  Pairing(c10::Device device, const ReplicateOptions& options)
      : device_(device), options_(options) {}

  void walk(Module& original, Module& twin, const std::string& path) {
    TORCH_CHECK(&original != &twin, "[replicate] the copy of '", path,
                "' is the original itself: make_replica() or the factory must make a new module");
    pairs_.modules.push_back({&original, &twin});
    const size_t first = pairs_.tensors.size();
    match(original.named_parameters(false), twin.named_parameters(false), path, "parameter", true);
    const bool writes = options_.writes_parameters && options_.writes_parameters(original);
    for (size_t i = first; i < pairs_.tensors.size(); ++i) {
      pairs_.tensors[i].written_in_forward = writes;
    }
    match(original.named_buffers(false), twin.named_buffers(false), path, "buffer", false);
    match_extra(original, twin, path);

    const auto children = original.named_children();
    const auto twins = twin.named_children();
    check_same_count(children.keys(), twins.keys(), path, "child module");
    const bool by_name = same_names(children.keys(), twins.keys());
    for (size_t i = 0; i < children.size(); ++i) {
      Module& other = by_name ? *twins[children[i].key()] : *twins[i].value();
      walk(*children[i].value(), other, path + children[i].key() + ".");
    }
  }

  Pairs take() { return std::move(pairs_); }

 private:
  static bool same_names(std::vector<std::string> a, std::vector<std::string> b) {
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    return a == b;
  }

  static void check_same_count(const std::vector<std::string>& original,
                               const std::vector<std::string>& twin, const std::string& path,
                               const char* kind) {
    TORCH_CHECK(original.size() == twin.size(), "[replicate] the copy of module '", path,
                "' differs from the original in its ", kind, "s: expected (", join(original),
                "), got (", join(twin), ")");
  }

  void match(const NamedTensors& original, const NamedTensors& twin, const std::string& path,
             const char* kind, bool is_parameter) {
    check_same_count(original.keys(), twin.keys(), path, kind);
    const bool by_name = same_names(original.keys(), twin.keys());
    for (size_t i = 0; i < original.size(); ++i) {
      const at::Tensor& other = by_name ? twin[original[i].key()] : twin[i].value();
      add(path + original[i].key(), original[i].value(), other, is_parameter);
    }
  }

  void match_extra(Module& original, Module& twin, const std::string& path) {
    auto* source = dynamic_cast<Replicatable*>(&original);
    auto* target = dynamic_cast<Replicatable*>(&twin);
    if (source == nullptr || target == nullptr) {
      return;
    }
    std::map<std::string, at::Tensor> originals;
    source->visit_extra_tensors([&](const std::string& name, at::Tensor& tensor) {
      TORCH_CHECK(originals.emplace(name, tensor).second, "[replicate] visit_extra_tensors names '",
                  path, name, "' twice");
    });
    ExtraTensors extras{target, {}};
    target->visit_extra_tensors([&](const std::string& name, at::Tensor& tensor) {
      const auto found = originals.find(name);
      TORCH_CHECK(found != originals.end(), "[replicate] visit_extra_tensors of the copy names '",
                  path, name, "', which the original does not");
      if (!found->second.defined()) {
        tensor = at::Tensor();
        extras.tensors.emplace_back();
        return;
      }
      // A copy constructor leaves the twin with the original's own tensor: never write to that one.
      tensor = at::empty_like(found->second.detach(), found->second.options().device(device_));
      add(path + name, found->second, tensor, false);
      extras.tensors.push_back(tensor);
    });
    TORCH_CHECK(extras.tensors.size() == originals.size(),
                "[replicate] visit_extra_tensors of the copy of '", path, "' names ",
                extras.tensors.size(), " tensors, of the original ", originals.size());
    pairs_.extras.push_back(std::move(extras));
  }

  void add(std::string name, const at::Tensor& original, const at::Tensor& twin,
           bool is_parameter) {
    TORCH_CHECK(original.unsafeGetTensorImpl() != twin.unsafeGetTensorImpl(),
                "[replicate] the copy holds the original's own tensor '", name,
                "': reset(), make_replica() or the factory must make a new one");
    TORCH_CHECK(original.layout() == twin.layout(), "[replicate] the copy's '", name, "' is ",
                twin.layout(), ", but the original's ", original.layout(),
                ": reset(), make_replica() or the factory must make one of the same layout");
    const auto [tied, is_new] =
        owner_of_.emplace(twin.unsafeGetTensorImpl(), Owner{original.unsafeGetTensorImpl(), name});
    TORCH_CHECK(is_new || tied->second.original == original.unsafeGetTensorImpl(),
                "[replicate] the copy has one tensor for '", tied->second.name, "' and '", name,
                "', which are two in the original: what reset(), make_replica() or the factory "
                "ties must be tied there too");
    pairs_.tensors.push_back({std::move(name), original, twin, is_parameter, false});
  }

  // What a tensor of the twin stands for.
  struct Owner {
    const c10::TensorImpl* original;
    std::string name;
  };

  const c10::Device device_;
  const ReplicateOptions& options_;
  Pairs pairs_;
  std::unordered_map<const c10::TensorImpl*, Owner> owner_of_;
};

}  // namespace

void warn_if_nothing_is_registered(const Module& module, const ReplicateOptions& options) {
  // LibTorch's own layers register what they hold. A Replicatable module and a factory are answers
  // of somebody who has thought of it.
  const bool own_copy = options.factory || dynamic_cast<const Replicatable*>(&module) != nullptr;
  const bool known = module.name().rfind("torch::nn::", 0) == 0;
  if (!own_copy && !known && module.parameters().empty() && module.buffers().empty()) {
    TORCH_WARN_ONCE("[replicate] nothing is registered in the module of type ", module.name(),
                    ": no parameter, no buffer, no child that has one. Layers in a plain member, "
                    "such as a std::vector, are not seen: all replicas would use the original's. "
                    "Register them, or put them into a ModuleList. Derive a module that really "
                    "holds no tensor from lockstep::replicate::Replicatable.");
  }
}

std::shared_ptr<Module> make_twin(const std::shared_ptr<Module>& original, c10::Device device,
                                  const ReplicateOptions& options) {
  const NoDrawsScope no_draws;
  try {
    return make_module(original, device, options);
  } catch (...) {
    if (!no_draws.has_skipped()) {
      throw;
    }
  }
  // What initialises it may compute with parameters that were not drawn, such as an inverse.
  const NoDrawsScope drawn(NoDrawsScope::Initialisation::kDrawn);
  return make_module(original, device, options);
}

Pairs pair_with_twin(const std::shared_ptr<Module>& original, const std::shared_ptr<Module>& twin,
                     c10::Device device, const ReplicateOptions& options) {
  Pairing pairing(device, options);
  pairing.walk(*original, *twin, "");
  return pairing.take();
}

}  // namespace lockstep::replicate::internal
