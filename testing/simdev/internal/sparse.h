// SPDX-License-Identifier: Apache-2.0
// sparse.h: sparse COO tensors of the devices: shells around two dense ones.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKey.h>

namespace torch {
class Library;
}

namespace lockstep::simdev::internal {

struct SparseParts {
  at::Tensor indices, values;
};
// Of a coalesced tensor or not, without a question.
SparseParts sparse_parts(const at::Tensor& sparse);

// A sparse tensor of that key with the shape and the coalesced mark of `like`.
at::Tensor make_sparse(c10::DispatchKey key, const at::Tensor& like, const at::Tensor& indices,
                       const at::Tensor& values);
void set_sparse(const at::Tensor& sparse, const at::Tensor& like, const at::Tensor& indices,
                const at::Tensor& values);

// `library` is that of "aten" on SparsePrivateUse1.
void register_sparse_kernels(torch::Library& library);

}  // namespace lockstep::simdev::internal
