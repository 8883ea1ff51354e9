// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/sparse.h"

#include <ATen/SparseTensorImpl.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_native.h>
#include <ATen/ops/_values_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/copy_sparse_to_sparse_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/empty_native.h>
#include <ATen/ops/indices_native.h>
#include <ATen/ops/is_coalesced_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/values_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <optional>

namespace lockstep::simdev::internal {
namespace {

at::SparseTensorImpl* impl_of(const at::Tensor& sparse) {
  return static_cast<at::SparseTensorImpl*>(sparse.unsafeGetTensorImpl());
}

// LibTorch's sparse kernels of all backends make their empty parts on the current device.
at::Tensor empty_sparse(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                        std::optional<at::Layout> layout, std::optional<at::Device> device,
                        std::optional<bool> pin_memory, std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::native::empty_sparse(size, dtype, layout, device, pin_memory, format);
}

at::Tensor with_dims(int64_t sparse_dim, int64_t dense_dim, at::IntArrayRef size,
                     std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                     std::optional<at::Device> device, std::optional<bool> pin_memory) {
  const c10::OptionalDeviceGuard guard(device);
  return at::native::new_with_dims_sparse(sparse_dim, dense_dim, size, dtype, layout, device,
                                          pin_memory);
}

at::Tensor with_dims_and_tensors(int64_t sparse_dim, int64_t dense_dim, c10::SymIntArrayRef size,
                                 const at::Tensor& indices, const at::Tensor& values,
                                 std::optional<at::ScalarType> dtype,
                                 std::optional<at::Layout> layout,
                                 std::optional<at::Device> /*device*/,
                                 std::optional<bool> pin_memory, std::optional<bool> is_coalesced) {
  TORCH_CHECK(indices.device() == values.device(), "[sparse_coo_tensor] expected indices on ",
              values.device(), ", as the values are, got ", indices.device());
  const c10::OptionalDeviceGuard guard(values.device());
  return at::native::new_with_dims_and_tensor_sparse_symint(sparse_dim, dense_dim, size, indices,
                                                            values, dtype, layout, values.device(),
                                                            pin_memory, is_coalesced);
}

at::Tensor& set_coalesced(at::Tensor& self, bool coalesced) {
  impl_of(self)->set_coalesced(coalesced);
  return self;
}

}  // namespace

SparseParts sparse_parts(const at::Tensor& sparse) {
  return {impl_of(sparse)->indices(), impl_of(sparse)->values()};
}

at::Tensor make_sparse(c10::DispatchKey key, const at::Tensor& like, const at::Tensor& indices,
                       const at::Tensor& values) {
  c10::OptionalDeviceGuard guard;
  if (!values.is_cpu()) {
    guard.reset_device(values.device());
  }
  const at::Tensor sparse =
      at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(key), like.dtype());
  set_sparse(sparse, like, indices, values);
  return sparse;
}

void set_sparse(const at::Tensor& sparse, const at::Tensor& like, const at::Tensor& indices,
                const at::Tensor& values) {
  const at::SparseTensorImpl* shape = impl_of(like);
  impl_of(sparse)->raw_resize_(shape->sparse_dim(), shape->dense_dim(), like.sizes());
  impl_of(sparse)->set_indices_and_values_unsafe(indices, values);
  impl_of(sparse)->set_coalesced(shape->coalesced());
}

void register_sparse_kernels(torch::Library& library) {
  library.impl("empty.memory_format", empty_sparse);
  library.impl("_sparse_coo_tensor_with_dims", with_dims);
  library.impl("_sparse_coo_tensor_with_dims_and_tensors", with_dims_and_tensors);
  library.impl("copy_", at::native::copy_sparse_wrapper_);
  library.impl("copy_sparse_to_sparse_", at::native::copy_sparse_);
  library.impl("_coalesced_", set_coalesced);
  library.impl("is_coalesced", at::native::is_coalesced_sparse);
  library.impl("sparse_dim", at::native::sparse_dim_sparse);
  library.impl("_dimI", at::native::sparse_dim_sparse);
  library.impl("dense_dim", at::native::dense_dim_sparse);
  library.impl("_dimV", at::native::dense_dim_sparse);
  library.impl("_nnz", at::native::_nnz_sparse);
  library.impl("_indices", at::native::_indices_sparse);
  library.impl("_values", at::native::_values_sparse);
  library.impl("indices", at::native::indices_sparse);
  library.impl("values", at::native::values_sparse);
}

}  // namespace lockstep::simdev::internal
