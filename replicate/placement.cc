// SPDX-License-Identifier: Apache-2.0
#include "replicate/placement.h"

#include <c10/util/Exception.h>

#include "replicate/replicatable.h"

namespace lockstep::replicate::internal {
namespace {

void check_part(torch::nn::Module& part, const std::string& path, c10::Device device) {
  for (const auto& parameter : part.named_parameters(/*recurse=*/false)) {
    check_placement("parameter", path + parameter.key(), parameter.value(), device);
  }
  for (const auto& buffer : part.named_buffers(/*recurse=*/false)) {
    check_placement("buffer", path + buffer.key(), buffer.value(), device);
  }
  if (auto* replicatable = dynamic_cast<Replicatable*>(&part)) {
    replicatable->visit_extra_tensors([&](const std::string& name, at::Tensor& tensor) {
      if (tensor.defined()) {
        check_placement("extra tensor", path + name, tensor, device);
      }
    });
  }
  for (const auto& child : part.named_children()) {
    check_part(*child.value(), path + child.key() + ".", device);
  }
}

}  // namespace

void check_placement(const char* kind, const std::string& name, const at::Tensor& tensor,
                     c10::Device device) {
  TORCH_CHECK(tensor.device() == device, "[replicate] ", kind, " '", name, "' is on ",
              tensor.device(), ", but the first device of the list is ", device,
              ": move the module there, or name its device first");
}

void check_module_is_on(torch::nn::Module& module, c10::Device device) {
  check_part(module, "", device);
}

}  // namespace lockstep::replicate::internal
