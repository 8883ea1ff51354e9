// SPDX-License-Identifier: Apache-2.0
#include "replicate/structure.h"

#include <ATen/core/Tensor.h>

#include "replicate/replicatable.h"

namespace lockstep::replicate::internal {
namespace {

using torch::nn::Module;

// Module keeps its parameters protected; named_parameters() copies every name, each time.
struct ParameterAccess : Module {
  static const torch::OrderedDict<std::string, at::Tensor>& of(const Module& module) {
    return module.*(&ParameterAccess::parameters_);
  }
};

// Calls visit(identity) for everything in the tree until it returns false; whether it never did.
template <class Visit>
bool visit_identities(Module& module, const Visit& visit) {
  if (!visit(&module)) {
    return false;
  }
  for (const auto& parameter : ParameterAccess::of(module)) {
    if (!visit(parameter.value().unsafeGetTensorImpl())) {
      return false;
    }
  }
  for (const at::Tensor& buffer : module.buffers(/*recurse=*/false)) {
    if (!visit(buffer.unsafeGetTensorImpl())) {
      return false;
    }
  }
  bool same = true;
  if (auto* replicatable = dynamic_cast<Replicatable*>(&module)) {
    replicatable->visit_extra_tensors([&](const std::string&, at::Tensor& tensor) {
      same = same && visit(tensor.unsafeGetTensorImpl());
    });
  }
  for (const auto& child : module.children()) {
    same = same && visit_identities(*child, visit);
  }
  return same;
}

}  // namespace

Structure::Structure(Module& root) : children_(root.modules(/*include_self=*/false)) {
  visit_identities(root, [this](const void* identity) {
    identities_.push_back(identity);
    return true;
  });
}

bool Structure::matches(Module& root) const {
  size_t next = 0;
  const bool same = visit_identities(root, [&](const void* identity) {
    return next < identities_.size() && identities_[next++] == identity;
  });
  return same && next == identities_.size();
}

}  // namespace lockstep::replicate::internal
