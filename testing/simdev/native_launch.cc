// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/native_launch.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "testing/simdev/internal/arena.h"
#include "testing/simdev/internal/clocks.h"
#include "testing/simdev/internal/counting.h"
#include "testing/simdev/internal/device_heap.h"
#include "testing/simdev/internal/memory.h"
#include "testing/simdev/internal/ordering.h"
#include "testing/simdev/simdev.h"

namespace lockstep::simdev {
namespace {

// The bytes as a tensor that owns nothing, since tensors are what the checker is told of.
at::Tensor as_tensor(const NativeAccess& access, int on_device) {
  c10::DataPtr memory(const_cast<void*>(access.address), device(on_device));
  c10::Storage storage(c10::Storage::use_byte_size_t(), access.bytes, std::move(memory));
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      caffe2::TypeMeta::Make<uint8_t>());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<int64_t>(access.bytes)});
  return tensor;
}

at::Tensor checked_tensor(const char* name, const NativeAccess& access) {
  const int on_device = internal::device_of_device_address(access.address);
  TORCH_CHECK(on_device >= 0, "[native_launch] expected '", name,
              "' to get memory of a device, got the address ", access.address);
  // Memory that is not live is a fault for the checker.
  const std::optional<NativeMemory> memory = native_memory(access.address);
  TORCH_CHECK(!memory || access.bytes <= memory->bytes, "[native_launch] expected '", name,
              "' to stay inside an allocation of simdev:", on_device, ", got ", access.bytes,
              " bytes where ", memory ? memory->bytes : 0, " are left");
  return as_tensor(access, on_device);
}

}  // namespace

std::optional<NativeMemory> native_memory(const void* device_address) {
  const int on_device = is_initialized() ? internal::device_of_device_address(device_address) : -1;
  if (on_device < 0 || on_device >= device_count()) {
    return std::nullopt;
  }
  const size_t offset = static_cast<const char*>(device_address) - internal::device_base(on_device);
  const size_t left =
      internal::heap(on_device).with_block(offset, [offset](const internal::Block& block) {
        const size_t end = block.offset + block.asked;
        return block.state == internal::BlockState::kLive && offset < end ? end - offset : 0;
      });
  if (left == 0) {
    return std::nullopt;
  }
  return NativeMemory{on_device, internal::kernel_address(device_address, on_device), left};
}

std::optional<c10::Stream> stream_of_native_handle(void* handle) {
  const auto number = reinterpret_cast<intptr_t>(handle) - 1;
  for (int on_device = 0; on_device < device_count(); ++on_device) {
    const std::vector<int> numbers = internal::streams_of_device(on_device);
    if (std::find(numbers.begin(), numbers.end(), number) != numbers.end()) {
      return internal::stream_of_number(static_cast<int>(number));
    }
  }
  return std::nullopt;
}

void native_launch(const c10::Stream& stream, const char* name,
                   c10::ArrayRef<NativeAccess> accesses) {
  TORCH_CHECK(stream.device_type() == c10::DeviceType::PrivateUse1,
              "[native_launch] expected a stream of a simulated device for '", name, "', got ",
              stream);
  std::vector<std::pair<at::Tensor, bool>> uses;
  for (const NativeAccess& access : accesses) {
    if (access.bytes > 0) {
      uses.emplace_back(checked_tensor(name, access), access.write);
    }
  }
  if (internal::counting_operators()) {
    internal::count_operator(name);
  }
  internal::count_kernel(stream.device_index());
  const internal::Launch launch = internal::launch(name, internal::stream_number(stream));
  for (const auto& [tensor, is_written] : uses) {
    internal::touch(tensor, is_written, launch);
  }
}

void native_order(const c10::Stream& earlier, const c10::Stream& later) {
  for (const c10::Stream& stream : {earlier, later}) {
    TORCH_CHECK(stream.device_type() == c10::DeviceType::PrivateUse1,
                "[native_order] expected streams of simulated devices, got ", stream);
  }
  internal::order_streams(internal::stream_number(earlier), internal::stream_number(later));
}

}  // namespace lockstep::simdev
