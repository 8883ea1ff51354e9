// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/copy_kernels.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include "testing/simdev/internal/aliasing.h"
#include "testing/simdev/internal/counting.h"
#include "testing/simdev/internal/memory.h"
#include "testing/simdev/internal/ordering.h"

namespace lockstep::simdev::internal {
namespace {

constexpr const char* kCopy = "aten::copy_";

// The device of a tensor, -1 for the host.
int index_of(const at::Tensor& tensor) {
  if (tensor.is_cpu()) {
    return -1;
  }
  TORCH_CHECK(tensor.device().type() == c10::DeviceType::PrivateUse1, "[", kCopy,
              "] expected tensors of the CPU or of simulated devices, got one on ",
              tensor.device());
  return tensor.device().index();
}

at::Tensor readable(const at::Tensor& tensor, int device) {
  return device < 0 ? tensor : host_alias(tensor, device);
}

// Others go through a temporary on the host, which is pageable.
bool moves_bytes_as_they_are(const at::Tensor& source, const at::Tensor& destination) {
  return source.scalar_type() == destination.scalar_type() &&
         source.is_conj() == destination.is_conj() && source.is_neg() == destination.is_neg() &&
         source.sizes().equals(destination.sizes()) &&
         source.strides().equals(destination.strides()) &&
         destination.is_non_overlapping_and_dense();
}

bool is_pinned_tensor(const at::Tensor& tensor) { return is_pinned(tensor.const_data_ptr()); }

void count(const at::Tensor& source, int from, const at::Tensor& destination, int to) {
  if (counting_operators()) {
    count_operator(kCopy);
  }
  const auto elements = static_cast<size_t>(destination.numel());
  if (from == to) {
    count_kernel(from);
  } else if (from < 0) {  // converted by the host, before
    count_copy(to, CopyDirection::kHostToDevice, elements * destination.itemsize());
  } else if (to < 0) {  // converted by the host, afterwards
    count_copy(from, CopyDirection::kDeviceToHost, elements * source.itemsize());
  } else {
    count_copy(from, CopyDirection::kPeer, elements * destination.itemsize());
  }
}

// Streams are those current on each device: a copy runs on the source's, host to device on the
// destination's; between devices the other stream waits before and is waited for after.
class CopyOrder {
 public:
  CopyOrder(const at::Tensor& source, int from, const at::Tensor& destination, int to) {
    const int stream = current_stream_number(from < 0 ? to : from);
    if (from >= 0 && to >= 0 && from != to) {
      waiting_ = current_stream_number(to);
      order_streams(waiting_, stream);
    }
    launch_ = launch(kCopy, stream);
    if (from >= 0) {
      touch(source, /*write=*/false, launch_);
    }
    if (to >= 0) {
      touch(destination, /*write=*/true, launch_);
    }
    if (from < 0) {
      flush_late_copies_into(source);
    }
  }

  void finish() const {
    if (waiting_ >= 0) {
      order_streams(launch_.stream, waiting_);
    }
  }

  const Launch& launched() const { return launch_; }

 private:
  Launch launch_;
  int waiting_ = -1;
};

void copy_values(const at::Tensor& source, const at::Tensor& destination) {
  const c10::impl::ExcludeDispatchKeyGuard keys(c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                                c10::autocast_dispatch_keyset);
  destination.copy_(source);
}

at::Tensor copy_of(const at::Tensor& source, const at::Tensor& like) {
  at::Tensor copy = at::empty_like(like);
  copy_values(source, copy);
  return copy;
}

void copy_to_host(const at::Tensor& source, const at::Tensor& destination, bool late,
                  const CopyOrder& order) {
  if (late) {
    copy_late(destination, copy_of(source, destination), order.launched());
    return;
  }
  // The host waits first, so that sources and destinations of earlier copies are settled before
  // their memory is written.
  synchronize_host(order.launched().stream);
  flush_late_copies_into(destination);
  copy_values(source, destination);
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& destination, bool non_blocking) {
  const int from = index_of(source), to = index_of(destination);
  TORCH_CHECK(at::is_expandable_to(source.sizes(), destination.sizes()), "[", kCopy,
              "] expected a source that broadcasts to ", destination.sizes(), ", got ",
              source.sizes());
  if (destination.numel() == 0) {
    return destination;
  }
  count(source, from, destination, to);
  const at::Tensor alias = readable(source, from), target = readable(destination, to);
  if (!checking_on()) {
    copy_values(alias, target);
    if (from < 0 ? !non_blocking : to < 0) {
      synchronize_host(current_stream_number(from < 0 ? to : from));
    }
    return destination;
  }
  const CopyOrder order(source, from, destination, to);
  const bool stays_asynchronous =
      non_blocking && from != to && moves_bytes_as_they_are(source, destination);
  if (to < 0) {
    copy_to_host(alias, target, stays_asynchronous && is_pinned_tensor(target), order);
    return destination;
  }
  copy_values(alias, target);
  order.finish();
  if (from < 0) {
    if (stays_asynchronous && is_pinned_tensor(alias)) {
      watch_pinned_source(alias, order.launched());
    } else if (!non_blocking) {
      synchronize_host(order.launched().stream);
    }
  }
  return destination;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& destination) {
  destination.resize_(source.sizes());
  return copy_from(source, destination, /*non_blocking=*/false);
}

}  // namespace

void register_copy_kernels(torch::Library& library) {
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
}

}  // namespace lockstep::simdev::internal
