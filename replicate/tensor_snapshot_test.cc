// SPDX-License-Identifier: Apache-2.0
#include "replicate/tensor_snapshot.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace lockstep::replicate::internal {
namespace {

using torch::autograd::Edge;
using torch::autograd::impl::gradient_edge;

TensorSnapshot snapshot_of(const at::Tensor& tensor) {
  return {tensor, tensor.requires_grad() ? gradient_edge(tensor) : Edge()};
}

TEST(TensorSnapshotTest, HoldsWhileOnlyValuesChange) {
  at::Tensor tensor = at::zeros({2, 3}).requires_grad_();
  const TensorSnapshot snapshot = snapshot_of(tensor);
  const at::NoGradGuard no_grad;
  tensor.add_(1);
  snapshot.prefetch();
  EXPECT_TRUE(snapshot.same_layout());
  EXPECT_TRUE(snapshot.same_edge());
}

TEST(TensorSnapshotTest, SeesOtherMemory) {
  at::Tensor tensor = at::zeros({2, 3});
  const TensorSnapshot snapshot = snapshot_of(tensor);
  tensor.set_data(at::ones({2, 3}));
  EXPECT_FALSE(snapshot.same_layout());
}

TEST(TensorSnapshotTest, SeesAnotherOffsetInTheSameMemory) {
  const at::Tensor base = at::zeros({4, 3});
  at::Tensor tensor = base.narrow(0, 0, 2).detach();
  const TensorSnapshot snapshot = snapshot_of(tensor);
  tensor.set_data(base.narrow(0, 2, 2));
  EXPECT_FALSE(snapshot.same_layout());
}

TEST(TensorSnapshotTest, SeesOtherSizesInTheSameMemory) {
  at::Tensor tensor = at::zeros({2, 3});
  const TensorSnapshot snapshot = snapshot_of(tensor);
  tensor.set_data(tensor.view({3, 2}));
  EXPECT_FALSE(snapshot.same_layout());
}

TEST(TensorSnapshotTest, SeesOtherStridesInTheSameMemory) {
  at::Tensor tensor = at::zeros({3, 3});
  const TensorSnapshot snapshot = snapshot_of(tensor);
  tensor.set_data(tensor.t());
  EXPECT_FALSE(snapshot.same_layout());
}

TEST(TensorSnapshotTest, SeesAnotherDtypeInTheSameMemory) {
  at::Tensor tensor = at::zeros({2, 3});
  const TensorSnapshot snapshot = snapshot_of(tensor);
  tensor.set_data(tensor.view(at::kInt));
  EXPECT_FALSE(snapshot.same_layout());
}

TEST(TensorSnapshotTest, NeverHoldsForASparseTensor) {
  const at::Tensor tensor = at::eye(3).to_sparse();
  EXPECT_FALSE(snapshot_of(tensor).same_layout());
}

TEST(TensorSnapshotTest, SeesFreezingAndThawing) {
  at::Tensor tensor = at::zeros({2}).requires_grad_();
  const TensorSnapshot trainable = snapshot_of(tensor);
  tensor.requires_grad_(false);
  EXPECT_FALSE(trainable.same_edge());
  const TensorSnapshot frozen = snapshot_of(tensor);
  EXPECT_TRUE(frozen.same_edge());
  tensor.requires_grad_(true);
  EXPECT_FALSE(frozen.same_edge());
}

TEST(TensorSnapshotTest, SeesANewAccumulator) {
  at::Tensor tensor = at::zeros({2}).requires_grad_();
  const TensorSnapshot snapshot = snapshot_of(tensor);
  // LibTorch drops the accumulator of a tensor that takes data of another dtype.
  tensor.set_data(at::zeros({2}, at::kDouble));
  EXPECT_FALSE(snapshot.same_edge());
}

TEST(TensorSnapshotTest, FollowsTheEdgeOfATensorThatWasComputed) {
  const at::Tensor leaf = at::zeros({2}).requires_grad_();
  at::Tensor computed = leaf * 2;
  const TensorSnapshot snapshot = snapshot_of(computed);
  EXPECT_TRUE(snapshot.same_edge());
  computed.mul_(3);
  EXPECT_FALSE(snapshot.same_edge());
}

TEST(TensorSnapshotTest, HoldsForAnEmptyAndForAScalarTensor) {
  EXPECT_TRUE(snapshot_of(at::zeros({0, 3})).same_layout());
  EXPECT_TRUE(snapshot_of(at::zeros({})).same_layout());
}

}  // namespace
}  // namespace lockstep::replicate::internal
