// SPDX-License-Identifier: Apache-2.0
// Work on a current stream that is not the default one: verbs come after what it holds, and their
// results are ready on it, without the host waiting in between.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "comm/broadcast.h"
#include "comm/nccl/communication_stream.h"
#include "comm/reduce_add_coalesced.h"
#include "comm/scatter.h"
#include "testing/matchers.h"
#include "tools/gpu_check/gpu_nccl_fixture.h"

namespace lockstep::gpu_check {
namespace {

using comm::nccl::CommHandle;
using comm::nccl::NcclApi;
using ::lockstep::testing::BitwiseEqual;

constexpr int64_t kElements = int64_t{1} << 22;
constexpr int kAdditions = 60;  // long after the host has gone on

class GpuSideStreamsTest : public GpuNcclTest {
 protected:
  // kAdditions everywhere, once the current stream has got there.
  static at::Tensor late() {
    const at::Tensor x = at::zeros({kElements}, c10::TensorOptions(at::kFloat).device(device()));
    for (int i = 0; i < kAdditions; ++i) {
      x.add_(1);
    }
    return x;
  }
  static at::Tensor all(float value) { return at::full({kElements}, value); }
  static c10::Stream new_stream() {
    return c10::impl::VirtualGuardImpl(device().type()).getNewStream(device());
  }

  const c10::StreamGuard side_{new_stream()};
  const std::vector<c10::Device> devices_{device(), device()};
};

TEST_F(GpuSideStreamsTest, CopiesAndSumsComeAfterTheirInputs) {
  const std::vector<at::Tensor> list = {late(), late()};
  const auto rows = comm::broadcast_coalesced(list, devices_);
  const auto sums = comm::reduce_add_coalesced(rows, device());
  EXPECT_THAT(rows[1][1], BitwiseEqual(all(kAdditions)));
  EXPECT_THAT(sums[1], BitwiseEqual(all(2 * kAdditions)));
}

TEST_F(GpuSideStreamsTest, PiecesOnStreamsOfTheirOwnAreReadyOnTheCurrentOne) {
  comm::ScatterOptions options;
  for (size_t i = 0; i < devices_.size(); ++i) {
    options.streams.emplace_back(new_stream());
  }
  const at::Tensor input = late();
  const auto pieces = comm::scatter(input, devices_, options);
  EXPECT_THAT(pieces[1], BitwiseEqual(all(kAdditions).chunk(2)[1]));
}

TEST_F(GpuSideStreamsTest, TheCommunicationStreamIsInOrderWithTheCurrentOne) {
  const at::Tensor x = late();
  const at::Tensor sum = at::zeros_like(x);
  comm::nccl::OnCommunicationStreams streams(device());
  streams.use(x, 0);
  streams.use(sum, 0);
  communicator_.launch("sum", [&](const NcclApi& nccl, CommHandle comm, int /*rank*/) {
    return all_reduce(nccl, x, sum, comm, streams.stream(0).native_handle());
  });
  streams.finish();
  EXPECT_NE(streams.stream(0), current_stream());
  EXPECT_THAT(sum + 1, BitwiseEqual(all(kAdditions + 1)));
}

}  // namespace
}  // namespace lockstep::gpu_check
