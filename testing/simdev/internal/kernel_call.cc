// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/kernel_call.h"

#include <c10/core/DispatchKeySet.h>
#include <c10/util/Exception.h>

#include <string>
#include <utility>

#include "testing/simdev/internal/aliasing.h"
#include "testing/simdev/internal/counting.h"
#include "testing/simdev/internal/sparse.h"

namespace lockstep::simdev::internal {

KernelBody::KernelBody(int device)
    : keys_(c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset),
      allocations_(device) {}

KernelCall::~KernelCall() {
  for (Argument& argument : arguments_) {
    if (!argument.host.is_sparse()) {
      recycle(std::move(argument.host));
    }
  }
}

void KernelCall::run_on(int device, const char* name) {
  TORCH_CHECK(device_ < 0 || device_ == device, "[", op_, "] expected argument '", name,
              "' on simdev:", device_, ", as '", device_name_, "' is, got simdev:", device);
  if (device_ < 0) {
    device_ = device;
    device_name_ = name;
  }
}

void KernelCall::expect_host_operand(const at::Tensor& tensor, const Operand& operand) const {
  const bool fits = tensor.is_cpu() && (operand.may_be_on_host || tensor.dim() == 0);
  if (fits && !operand.written) {
    return;
  }
  const std::string place =
      device_ < 0 ? "a simulated device" : "simdev:" + std::to_string(device_);
  const std::string as = device_ < 0 ? "" : std::string(", as '") + device_name_ + "' is";
  TORCH_CHECK(false, "[", op_, "] expected argument '", operand.name, "' on ", place, as,
              ", got a tensor of size ", tensor.sizes(), " on ", tensor.device(),
              operand.written ? "" : "; only 0-dim tensors of the CPU may be mixed in");
}

at::Tensor KernelCall::alias(const at::Tensor& tensor, const Operand& operand) {
  if (!tensor.defined()) {
    return tensor;
  }
  const c10::Device device = tensor.device();
  if (device.type() != c10::DeviceType::PrivateUse1) {
    expect_host_operand(tensor, operand);
    return tensor;
  }
  run_on(device.index(), operand.name);
  for (Argument& argument : arguments_) {
    if (argument.device.is_same(tensor)) {
      argument.operand.written |= operand.written;
      return argument.host;
    }
  }
  at::Tensor host = tensor.is_sparse() ? sparse_alias(tensor, operand) : dense_alias(tensor);
  arguments_.push_back({tensor, host, operand});
  return host;
}

at::Tensor KernelCall::dense_alias(const at::Tensor& tensor) {
  // One storage for all views of one, so that kernels see which of their arguments overlap.
  const c10::StorageImpl* storage =
      tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  for (const Argument& argument : arguments_) {
    if (!argument.device.is_sparse() &&
        argument.device.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() == storage) {
      return host_alias(tensor, argument.host);
    }
  }
  return host_alias(tensor, device_);
}

at::Tensor KernelCall::sparse_alias(const at::Tensor& tensor, const Operand& operand) {
  const SparseParts parts = sparse_parts(tensor);
  return make_sparse(c10::DispatchKey::SparseCPU, tensor, alias(parts.indices, operand),
                     alias(parts.values, operand));
}

KernelBody KernelCall::launch() {
  if (device_ < 0) {
    run_on(current_device(), "device");
  }
  if (effect_ == Effect::kAccess) {
    if (counting_operators()) {
      count_operator(op_);
    }
    count_kernel(device_);
    if (checking_on()) {
      launch_ = internal::launch(op_, current_stream_number(device_));
      for (const Argument& argument : arguments_) {
        if (!argument.device.is_sparse()) {
          touch(argument.device, argument.operand.written, launch_);
        }
      }
    }
  }
  return KernelBody(device_);
}

void KernelCall::note_write(const at::Tensor& tensor) {
  if (launch_.stream >= 0) {
    touch(tensor, /*write=*/true, launch_);
  }
}

c10::Storage KernelCall::device_storage(const c10::Storage& host, bool* made) {
  const c10::StorageImpl* storage = host.unsafeGetStorageImpl();
  *made = false;
  for (const Argument& argument : arguments_) {
    if (!argument.host.is_sparse() && argument.host.storage().unsafeGetStorageImpl() == storage) {
      return argument.device.storage();
    }
  }
  for (const auto& [of_host, of_device] : adopted_) {
    if (of_host.unsafeGetStorageImpl() == storage) {
      return of_device;
    }
  }
  *made = true;
  adopted_.emplace_back(host, adopt(host, device_));
  return adopted_.back().second;
}

at::Tensor KernelCall::result(const at::Tensor& host) {
  if (!host.defined()) {
    return host;
  }
  for (const Argument& argument : arguments_) {
    if (argument.host.is_same(host)) {
      return argument.device;
    }
  }
  if (host.is_sparse()) {
    const SparseParts parts = sparse_parts(host);
    return make_sparse(c10::DispatchKey::SparsePrivateUse1, host, result(parts.indices),
                       result(parts.values));
  }
  bool made = false;
  const at::Tensor tensor = device_tensor(device_storage(host.storage(), &made), host);
  if (made) {
    note_write(tensor);
  }
  return tensor;
}

void KernelCall::write_back() {
  for (const Argument& argument : arguments_) {
    if (!argument.operand.written) {
      continue;
    }
    if (argument.device.is_sparse()) {
      write_back_sparse(argument);
    } else {
      write_back_dense(argument);
    }
  }
}

void KernelCall::write_back_dense(const Argument& argument) {
  const at::Tensor &device = argument.device, &host = argument.host;
  if (!device.sizes().equals(host.sizes()) || !device.strides().equals(host.strides()) ||
      device.storage_offset() != host.storage_offset()) {
    device.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides(),
                                                        host.storage_offset());
  }
  c10::StorageImpl* storage = device.storage().unsafeGetStorageImpl();
  const size_t bytes = host.storage().nbytes();
  if (raw_address(host.storage()) != kernel_address(raw_address(device.storage()), device_) ||
      bytes != storage->nbytes()) {
    const c10::Storage grown = adopt(host.storage(), device_);
    storage->set_data_ptr_noswap(
        std::move(grown.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks()));
    storage->set_nbytes(bytes);
    note_write(device);  // of the new size
  }
}

void KernelCall::write_back_sparse(const Argument& argument) {
  const SparseParts parts = sparse_parts(argument.host);
  set_sparse(argument.device, argument.host, result(parts.indices), result(parts.values));
}

}  // namespace lockstep::simdev::internal
