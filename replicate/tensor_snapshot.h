// SPDX-License-Identifier: Apache-2.0
// tensor_snapshot.h: notices that a tensor has other memory, another layout or another gradient
// edge than it had. Internal to the project.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <memory>

namespace lockstep::replicate::internal {

// A synchronisation looks at every tensor of a model, most often to find that nothing but values
// changed, and its time is that of the cache misses. So all to compare with lies in one place, and
// what is compared can be fetched ahead.
class TensorSnapshot {
 public:
  // An invalid edge: the tensor needs no gradient. The owner keeps the tensor's storage alive, so
  // that no other one takes its address.
  TensorSnapshot(const at::Tensor& tensor, torch::autograd::Edge edge);

  // Whether storage, offset, dtype, sizes and strides are what they were. Never for a tensor that is
  // not strided. The device is then the same too: it is the storage's.
  bool same_layout() const;

  // Whether the gradient of the tensor still goes to the edge given. Takes no lock, makes no
  // accumulator.
  bool same_edge() const;

  // Starts to load what the two above will read.
  void prefetch() const;

 private:
  at::Tensor tensor_;
  const c10::StorageImpl* storage_ = nullptr;  // null: not strided
  const torch::autograd::AutogradMeta* meta_;  // as it was; only to fetch it ahead
  int64_t offset_ = 0;
  caffe2::TypeMeta dtype_;
  c10::SmallVector<int64_t, 4> sizes_;
  c10::SmallVector<int64_t, 4> strides_;
  torch::autograd::Edge edge_;
  std::weak_ptr<torch::autograd::Node> function_;
};

}  // namespace lockstep::replicate::internal
