// SPDX-License-Identifier: Apache-2.0
#include "comm/internal/sparse_parts.h"

#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/empty_like.h>

namespace lockstep::comm::internal {

SparseParts take_apart(const at::Tensor& sparse) { return {sparse._indices(), sparse._values()}; }

at::Tensor put_together(const SparseParts& parts, const at::Tensor& like) {
  return at::_sparse_coo_tensor_unsafe(parts.indices, parts.values, like.sizes(),
                                       like.options().device(parts.values.device()),
                                       like.is_coalesced());
}

at::Tensor sparse_to_device(const at::Tensor& sparse, c10::Device device,
                            DeviceCollectives& collectives) {
  if (sparse.device() == device) {
    return sparse;
  }
  const auto send = [&](const at::Tensor& part) {
    at::Tensor copy = at::empty_like(part, part.options().device(device));
    collectives.copy(part, copy);
    return copy;
  };
  const SparseParts parts = take_apart(sparse);
  return put_together({send(parts.indices), send(parts.values)}, sparse);
}

}  // namespace lockstep::comm::internal
