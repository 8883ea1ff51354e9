// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/gpu_nccl_fixture.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <optional>

#include "comm/nccl/nccl_dtype.h"
#include "testing/random.h"

namespace lockstep::gpu_check {

using comm::nccl::CommHandle;
using comm::nccl::NcclApi;
using comm::nccl::RedOp;
using comm::nccl::Result;
using comm::nccl::StreamHandle;

void GpuNcclTest::launch(const char* op, const Call& call) {
  const StreamHandle stream = current_stream().native_handle();
  communicator_.launch(op, [&](const NcclApi& nccl, CommHandle comm, int /*rank*/) {
    return call(nccl, comm, stream);
  });
}

void GpuNcclTest::sum(const at::Tensor& send, const at::Tensor& receive) {
  launch("sum", [&](const NcclApi& nccl, CommHandle comm, StreamHandle stream) {
    return all_reduce(nccl, send, receive, comm, stream);
  });
}

Result GpuNcclTest::all_reduce(const NcclApi& nccl, const at::Tensor& send,
                               const at::Tensor& receive, CommHandle comm, StreamHandle stream,
                               RedOp op) {
  const auto elements = comm::nccl::as_summands(send);
  TORCH_CHECK(elements.has_value(), "NCCL cannot add ", send.scalar_type());
  return nccl.all_reduce(send.const_data_ptr(), receive.mutable_data_ptr(), elements->count,
                         elements->dtype, op, comm, stream);
}

at::Tensor GpuNcclTest::data(at::IntArrayRef sizes, uint64_t seed, at::ScalarType dtype) {
  return lockstep::testing::random_tensor(sizes, seed, dtype).to(device());
}

comm::nccl::CommunicatorOptions GpuNcclTest::patience() {
  comm::nccl::CommunicatorOptions options;
  options.timeout = std::chrono::seconds(30);
  return options;
}

c10::Stream GpuNcclTest::current_stream() {
  return c10::impl::VirtualGuardImpl(device().type()).getStream(device());
}

}  // namespace lockstep::gpu_check
