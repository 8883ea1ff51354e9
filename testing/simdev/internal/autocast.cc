// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/autocast.h"

#include <ATen/Operators.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <optional>

namespace lockstep::simdev::internal {
namespace {

// In half precision its logarithms overflow: LibTorch refuses it under CUDA's autocast too.
at::Tensor refuse_binary_cross_entropy(const at::Tensor& /*self*/, const at::Tensor& /*target*/,
                                       const std::optional<at::Tensor>& /*weight*/,
                                       int64_t /*reduction*/) {
  TORCH_CHECK(false,
              "[binary_cross_entropy] expected binary_cross_entropy_with_logits under autocast, "
              "got binary_cross_entropy, which is unsafe in half precision");
}

}  // namespace

// LibTorch's macros register with the library called `m`, and name functions of at:: and
// at::autocast.
void register_autocast_kernels(torch::Library& m) {
  using namespace at;            // NOLINT(google-build-using-namespace)
  using namespace at::autocast;  // NOLINT(google-build-using-namespace)
#define LOCKSTEP_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define LOCKSTEP_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define LOCKSTEP_FP32_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define LOCKSTEP_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(LOCKSTEP_LOWER_PRECISION)
  AT_FORALL_FP32(LOCKSTEP_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(LOCKSTEP_FP32_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(LOCKSTEP_PROMOTE)
#undef LOCKSTEP_LOWER_PRECISION
#undef LOCKSTEP_FP32
#undef LOCKSTEP_FP32_DTYPE
#undef LOCKSTEP_PROMOTE
  m.impl("binary_cross_entropy", refuse_binary_cross_entropy);
}

}  // namespace lockstep::simdev::internal
