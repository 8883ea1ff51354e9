// SPDX-License-Identifier: Apache-2.0
#include <c10/util/Exception.h>

#include <string>

#include "tools/gpu_check/subject.h"

namespace lockstep::gpu_check {

c10::Device device() { return c10::Device(c10::kCUDA, 0); }

const comm::nccl::NcclApi& nccl() {
  std::string reason;
  const comm::nccl::NcclApi* const found = comm::nccl::find_nccl(&reason);
  TORCH_CHECK(found != nullptr, "no NCCL: ", reason);
  return *found;
}

void forget_broken_rules() {}

}  // namespace lockstep::gpu_check
