// SPDX-License-Identifier: Apache-2.0
#include "comm/internal/plain_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace lockstep::comm::internal {
namespace {

TEST(PlainMemoryTest, IsWhatReadsAsItsBytesDo) {
  const at::Tensor tensor = at::zeros({2, 3, 4, 5});
  EXPECT_TRUE(is_plain_memory(tensor));
  EXPECT_TRUE(is_plain_memory(tensor.transpose(0, 1)));
  EXPECT_TRUE(is_plain_memory(tensor.contiguous(at::MemoryFormat::ChannelsLast)));
  EXPECT_TRUE(is_plain_memory(at::zeros({})));
}

TEST(PlainMemoryTest, IsNotWhatHasGapsOrOverlapsOrAnOperationLeftToApply) {
  const at::Tensor complex = at::zeros({4}, at::kComplexFloat);
  EXPECT_FALSE(is_plain_memory(at::zeros({4, 4}).slice(0, 0, 4, 2)));
  EXPECT_FALSE(is_plain_memory(at::zeros({1}).expand({3})));
  EXPECT_FALSE(is_plain_memory(complex.conj()));
  EXPECT_FALSE(is_plain_memory(at::imag(complex.conj())));
  EXPECT_FALSE(is_plain_memory(at::zeros({3}).to_sparse()));
}

}  // namespace
}  // namespace lockstep::comm::internal
