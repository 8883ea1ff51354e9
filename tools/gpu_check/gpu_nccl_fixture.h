// SPDX-License-Identifier: Apache-2.0
// gpu_nccl_fixture.h: what the checks of NCCL on one device share. NCCL refuses two ranks on one
// GPU, so the communicator has a single rank, for which a sum is its input.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>

#include "comm/nccl/nccl_api.h"
#include "comm/nccl/nccl_communicator.h"
#include "tools/gpu_check/subject.h"

namespace lockstep::gpu_check {

class GpuNcclTest : public ::testing::Test {
 protected:
  using Call = std::function<comm::nccl::Result(const comm::nccl::NcclApi&, comm::nccl::CommHandle,
                                                comm::nccl::StreamHandle)>;

  // Calls in one group, on the device's current stream.
  void launch(const char* op, const Call& call);

  // receive = the sum over all ranks of send, in a launch of its own.
  void sum(const at::Tensor& send, const at::Tensor& receive);

  // The same as one call of a launch. `op` in place of the sum if it is given.
  static comm::nccl::Result all_reduce(const comm::nccl::NcclApi& nccl, const at::Tensor& send,
                                       const at::Tensor& receive, comm::nccl::CommHandle comm,
                                       comm::nccl::StreamHandle stream,
                                       comm::nccl::RedOp op = comm::nccl::RedOp::kSum);

  // Seeded values on the device.
  static at::Tensor data(at::IntArrayRef sizes, uint64_t seed, at::ScalarType dtype = at::kFloat);

  static comm::nccl::CommunicatorOptions patience();
  static c10::Stream current_stream();

  comm::nccl::NcclCommunicator communicator_{nccl(), device(), patience()};
};

}  // namespace lockstep::gpu_check
