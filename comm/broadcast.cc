// SPDX-License-Identifier: Apache-2.0
#include "comm/broadcast.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>

#include <utility>

#include "comm/device_list.h"
#include "comm/internal/checks.h"

namespace lockstep::comm {
namespace {

std::vector<at::Tensor> broadcast_sparse(const at::Tensor& tensor,
                                         c10::ArrayRef<c10::Device> devices,
                                         const BroadcastOptions& options) {
  CoalesceOptions coalesce;
  coalesce.collectives = options.collectives;
  std::vector<at::Tensor> outputs;
  for (std::vector<at::Tensor>& row : broadcast_coalesced(tensor, devices, coalesce)) {
    outputs.push_back(std::move(row[0]));
  }
  return outputs;
}

}  // namespace

std::vector<at::Tensor> broadcast(const at::Tensor& tensor, c10::ArrayRef<c10::Device> devices,
                                  const BroadcastOptions& options) {
  const std::vector<c10::Device> places = normalize_devices("broadcast", devices);
  internal::check_dense_or_sparse("broadcast", "tensor", tensor, 0);
  if (tensor.is_sparse()) {
    return broadcast_sparse(tensor, places, options);
  }
  const at::NoGradGuard no_grad;
  const c10::Device home = normalize_device("broadcast", tensor.device());
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> fresh;
  bool home_taken = false;
  for (const c10::Device place : places) {
    if (place == home && !home_taken) {
      home_taken = true;
      outputs.push_back(tensor);
      continue;
    }
    fresh.push_back(
        at::empty_like(tensor, tensor.options().device(place), at::MemoryFormat::Preserve));
    outputs.push_back(fresh.back());
  }
  if (!fresh.empty()) {
    internal::choose_collectives(options.collectives, home, places).broadcast(tensor, fresh);
  }
  return outputs;
}

std::vector<at::Tensor> broadcast_out(const at::Tensor& tensor, at::TensorList outputs,
                                      const BroadcastOptions& options) {
  constexpr const char* kOp = "broadcast_out";
  internal::check_dense(kOp, "tensor", tensor, 0);
  TORCH_CHECK(!outputs.empty(), "[", kOp, "] expected at least one output, got an empty list");
  std::vector<at::Tensor> written;
  std::vector<c10::Device> places;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const at::Tensor& output = outputs[i];
    const int64_t index = static_cast<int64_t>(i);
    internal::check_dense(kOp, "output", output, index);
    TORCH_CHECK(output.sizes() == tensor.sizes(), "[", kOp, "] expected an output of size ",
                tensor.sizes(), ", got ", output.sizes(), ", at index ", index);
    TORCH_CHECK(output.scalar_type() == tensor.scalar_type(), "[", kOp,
                "] expected an output of dtype ", tensor.scalar_type(), ", got ",
                output.scalar_type(), ", at index ", index);
    if (!internal::same_memory(output, tensor)) {
      internal::check_writable(kOp, output, tensor, index);
      written.push_back(output);
      places.push_back(output.device());
    }
  }
  if (!written.empty()) {
    internal::choose_collectives(options.collectives, tensor.device(), places)
        .broadcast(tensor, written);
  }
  return outputs.vec();
}

}  // namespace lockstep::comm
