// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/storage_kernels.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <optional>
#include <utility>

#include "testing/simdev/internal/aliasing.h"
#include "testing/simdev/internal/kernel_call.h"
#include "testing/simdev/internal/memory.h"
#include "testing/simdev/internal/ordering.h"

namespace lockstep::simdev::internal {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

void check_options(std::optional<at::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK(c10::layout_or_default(layout) == at::kStrided,
              "[empty] expected layout Strided on a simulated device, got ", *layout);
  TORCH_CHECK(!c10::pinned_memory_or_default(pin_memory),
              "[empty] expected pin_memory for a tensor of the CPU only, got it for a simulated "
              "device");
}

// Makes the device current, which the allocator allocates on; cheap if it is.
class OnDevice {
 public:
  explicit OnDevice(std::optional<at::Device> device) {
    if (device && device->has_index() && device->index() != current_device()) {
      guard_.reset_device(*device);
    }
  }

 private:
  c10::OptionalDeviceGuard guard_;
};

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> layout, std::optional<at::Device> device,
                 std::optional<bool> pin_memory, std::optional<at::MemoryFormat> format) {
  check_options(layout, pin_memory);
  const OnDevice on_device(device);
  return at::Tensor(at::detail::empty_generic(size, device_allocator(), kKeys,
                                              c10::dtype_or_default(dtype), format));
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                         std::optional<at::Device> device, std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  const OnDevice on_device(device);
  return at::Tensor(at::detail::empty_strided_generic(size, stride, device_allocator(), kKeys,
                                                      c10::dtype_or_default(dtype)));
}

// Real zeros: the lazy kind has no memory, and aliases need some.
at::Tensor efficient_zeros(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                           std::optional<at::Layout> layout, std::optional<at::Device> device,
                           std::optional<bool> pin_memory) {
  return empty(size, dtype, layout, device, pin_memory, std::nullopt).zero_();
}

// Makes the tensor's storage at least that long; what was in it stays.
void grow(const at::Tensor& tensor, size_t needed) {
  const size_t had = tensor.storage().nbytes();
  if (needed <= had) {
    return;
  }
  KernelCall call("aten::resize_", had == 0 ? Effect::kMetadata : Effect::kAccess);
  // All that the storage holds is copied, whatever the tensor covers of it.
  const at::Tensor bytes = device_tensor(
      tensor.storage(), at::detail::empty_meta({static_cast<int64_t>(had)}, at::kByte));
  const at::Tensor alias = call.write(bytes, "self");
  {
    const KernelBody running = call.launch();
    at::native::resize_bytes_cpu(alias.storage().unsafeGetStorageImpl(), needed);
  }
  call.write_back();
}

size_t bytes_needed(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                    int64_t offset) {
  const auto start = static_cast<size_t>(offset);
  if (c10::multiply_integers(size) == 0) {
    return 0;
  }
  return stride.data() == nullptr
             ? at::detail::computeStorageNbytesContiguous(size, self.itemsize(), start)
             : at::detail::computeStorageNbytes(size, stride, self.itemsize(), start);
}

const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef size,
                         std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(format != at::MemoryFormat::Preserve,
              "[resize_] expected a memory format, got Preserve");
  at::detail::check_size_nonnegative(size);
  grow(self, bytes_needed(self, size, {}, self.storage_offset()));
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  if (!self.sizes().equals(size)) {
    impl->set_sizes_contiguous(size);
  }
  if (format) {
    impl->empty_tensor_restride(*format);
  }
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size,
                        at::IntArrayRef stride) {
  at::native::checkSetStorage(self, std::move(source), offset, size, stride);
  grow(self, bytes_needed(self, size, stride, offset));
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  if (stride.data() == nullptr) {
    impl->set_storage_offset(offset);
    impl->set_sizes_contiguous(size);
  } else {
    impl->set_sizes_and_strides(size, stride, offset);
  }
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  const auto elements = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return set_storage(self, std::move(source), 0, {elements}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  if (!self.is_same(source)) {
    set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
  }
  return self;
}

at::Tensor& set_empty(at::Tensor& self) {
  const OnDevice on_device(self.device());
  c10::Storage none(c10::Storage::use_byte_size_t(), 0, device_allocator(), /*resizable=*/true);
  return set_storage(self, std::move(none), 0, {0}, {});
}

void record_stream_of(at::Tensor& self, at::Stream stream) {
  record_stream(raw_address(self.storage()), stream);
}

// set_data and module->to() keep the TensorImpl of a parameter when it changes its device.
bool may_shallow_copy(const at::Tensor& self, const at::Tensor& from) {
  const auto is_dense = [](const at::Tensor& tensor) {
    return tensor.layout() == at::kStrided &&
           (tensor.is_cpu() || tensor.device().type() == c10::DeviceType::PrivateUse1);
  };
  return self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set()) ||
         (is_dense(self) && is_dense(from));
}

}  // namespace

void register_storage_kernels(torch::Library& library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("_efficientzerotensor", efficient_zeros);
  library.impl("resize_", resize);
  library.impl("set_", set_empty);
  library.impl("set_.source_Storage", set_whole_storage);
  library.impl("set_.source_Storage_storage_offset", set_storage);
  library.impl("set_.source_Tensor", set_tensor);
  library.impl("record_stream", record_stream_of);
  library.impl("_has_compatible_shallow_copy_type", may_shallow_copy);
}

}  // namespace lockstep::simdev::internal
