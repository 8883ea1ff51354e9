// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/aliasing.h"

#include <c10/core/DispatchKeySet.h>

#include <cstring>
#include <utility>
#include <vector>

#include "testing/simdev/internal/memory.h"

namespace lockstep::simdev::internal {
namespace {

c10::Device device_of(int device) {
  return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device)};
}

c10::Storage make_storage(size_t bytes, c10::DataPtr data, c10::Allocator* allocator) {
  return {c10::Storage::use_byte_size_t(), bytes, std::move(data), allocator, /*resizable=*/true};
}

void delete_storage(void* storage) { delete static_cast<c10::Storage*>(storage); }

void take_shape(c10::TensorImpl* impl, const at::Tensor& like) {
  if (impl->storage_offset() != like.storage_offset() || !impl->sizes().equals(like.sizes()) ||
      !impl->strides().equals(like.strides())) {
    impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  }
}

void take_lazy_bits(c10::TensorImpl* impl, const at::Tensor& like) {
  if (impl->is_conj() != like.is_conj()) {
    impl->_set_conj(like.is_conj());
  }
  if (impl->is_neg() != like.is_neg()) {
    impl->_set_neg(like.is_neg());
  }
  const bool wrapped = like.unsafeGetTensorImpl()->is_wrapped_number();
  if (impl->is_wrapped_number() != wrapped) {
    impl->set_wrapped_number(wrapped);
  }
}

at::Tensor make_tensor(c10::Storage storage, c10::DispatchKey key, const at::Tensor& like) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(key), like.dtype());
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  take_shape(impl, like);
  take_lazy_bits(impl, like);
  return tensor;
}

c10::DataPtr borrowed(const at::Tensor& tensor, int device) {
  return {kernel_address(raw_address(tensor.storage()), device), c10::Device(c10::kCPU)};
}

constexpr size_t kMaxIdle = 16;

std::vector<at::Tensor>& idle_aliases() {
  thread_local std::vector<at::Tensor> idle;
  return idle;
}

}  // namespace

void* raw_address(const c10::Storage& storage) {
  return storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get();
}

at::Tensor host_alias(const at::Tensor& tensor, int device) {
  std::vector<at::Tensor>& idle = idle_aliases();
  if (idle.empty()) {
    return make_tensor(
        make_storage(tensor.storage().nbytes(), borrowed(tensor, device), host_allocator()),
        c10::DispatchKey::CPU, tensor);
  }
  at::Tensor alias = std::move(idle.back());
  idle.pop_back();
  c10::TensorImpl* impl = alias.unsafeGetTensorImpl();
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(borrowed(tensor, device));
  storage->set_nbytes(tensor.storage().nbytes());
  if (impl->dtype() != tensor.dtype()) {
    impl->set_storage_and_dtype(impl->unsafe_storage(), tensor.dtype());
  }
  take_shape(impl, tensor);
  take_lazy_bits(impl, tensor);
  return alias;
}

at::Tensor host_alias(const at::Tensor& tensor, const at::Tensor& sibling) {
  return make_tensor(sibling.storage(), c10::DispatchKey::CPU, tensor);
}

void recycle(at::Tensor alias) {
  c10::TensorImpl* impl = alias.unsafeGetTensorImpl();
  const c10::Storage& storage = impl->unsafe_storage();
  std::vector<at::Tensor>& idle = idle_aliases();
  if (idle.size() < kMaxIdle && alias.use_count() == 1 && alias.weak_use_count() == 1 &&
      storage.use_count() == 1 && !impl->is_inference() && !impl->is_wrapped_number() &&
      storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get_context() == nullptr) {
    idle.push_back(std::move(alias));
  }
}

c10::Storage adopt(const c10::Storage& host_storage, int device) {
  const size_t bytes = host_storage.nbytes();
  void* made = raw_address(host_storage);
  if (made != nullptr && device_of_kernel_address(made) != device) {
    void* address = allocate(bytes, device);
    if (bytes > 0) {
      std::memcpy(kernel_address(address, device), made, bytes);
    }
    return make_storage(
        bytes,
        c10::DataPtr(
            address, address, [](void* block) { release(block); }, device_of(device)),
        device_allocator());
  }
  auto* owner = new c10::Storage(host_storage);
  return make_storage(
      bytes, c10::DataPtr(device_address(made, device), owner, &delete_storage, device_of(device)),
      device_allocator());
}

at::Tensor device_tensor(c10::Storage storage, const at::Tensor& like) {
  return make_tensor(std::move(storage), c10::DispatchKey::PrivateUse1, like);
}

}  // namespace lockstep::simdev::internal
