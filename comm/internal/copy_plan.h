// SPDX-License-Identifier: Apache-2.0
// copy_plan: the checks of broadcast_coalesced_out and the copies it makes without a message.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <vector>

namespace lockstep::comm::internal {

// A copy between two CPU tensors of equal strides: one run of bytes.
struct ByteCopy {
  char* to;
  const char* from;
  size_t bytes;
  c10::TensorImpl* written;
};

// What is to be done, found by the checks so that each tensor is looked at once.
struct CopyPlan {
  std::vector<ByteCopy> byte_copies;
  int64_t byte_count = 0;
  std::vector<at::Tensor> local_from;  // on the same device, in any layout
  std::vector<at::Tensor> local_to;
  std::vector<size_t> remote_rows;  // rows of copies on other devices than the tensors
};

// Checks every argument of broadcast_coalesced_out and says what has to be copied; writes nothing.
CopyPlan plan_copies(const char* op, at::TensorList tensors,
                     c10::ArrayRef<std::vector<at::Tensor>> copies);

// Makes the copies within one device; each written tensor's version counter rises.
void copy_local(const CopyPlan& plan);

}  // namespace lockstep::comm::internal
