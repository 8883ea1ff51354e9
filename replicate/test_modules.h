// SPDX-License-Identifier: Apache-2.0
// test_modules.h: small modules and helpers that several tests of this folder share.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "replicate/replicas_fixture.h"
#include "replicate/replicate.h"
#include "testing/matchers.h"

namespace lockstep::replicate {

// y = x * weight + shift, elementwise; shift is a buffer. In double precision. Its reset() draws.
struct AffineImpl : torch::nn::Cloneable<AffineImpl> {
  explicit AffineImpl(int64_t width) : width(width) { reset(); }

  void reset() override;
  at::Tensor forward(const at::Tensor& x) const;
  // Registers another tensor under the old name.
  void replace_weight(const at::Tensor& tensor);

  int64_t width;
  at::Tensor weight;
  at::Tensor shift;
  static std::atomic<int64_t> num_resets;  // of all objects
};

// One tensor under two names, twice: as a parameter, and as a child module.
struct TiedImpl : torch::nn::Cloneable<TiedImpl> {
  TiedImpl() { reset(); }

  void reset() override;
  at::Tensor forward(const at::Tensor& x) const;

  at::Tensor a;
  at::Tensor b;
  std::shared_ptr<AffineImpl> left;
  std::shared_ptr<AffineImpl> right;
};

// A module with no clone() and nothing else that says how to copy it.
struct PlainImpl : torch::nn::Module {
  PlainImpl();
  at::Tensor forward(const at::Tensor& x) { return x; }

  at::Tensor weight;
};

// Returns the gradients of unique_parameters(module), undefined ones included, and clears them.
std::vector<at::Tensor> take_gradients(torch::nn::Module& module);

// The state of the default CPU generator.
at::Tensor generator_state();

// Expects that loss(replica i, i), summed over the replicas and then differentiated, gives the
// gradients that loss(module, 0), loss(module, 1), ... give one after another on the module itself.
// `loss` takes its data to where the module or replica is: see beside().
template <class M>
void expect_gradients_of_one_device(const std::shared_ptr<M>& module,
                                    c10::ArrayRef<c10::Device> devices,
                                    const std::function<at::Tensor(M&, int64_t)>& loss,
                                    testing::Tolerance tolerance = {1e-12, 1e-12}) {
  const auto n = static_cast<int64_t>(devices.size());
  for (int64_t i = 0; i < n; ++i) {
    loss(*module, i).backward();
  }
  const std::vector<at::Tensor> expected = take_gradients(*module);
  const auto replicas = replicate(module, devices);
  at::Tensor total = loss(*replicas[0], 0);
  for (int64_t i = 1; i < n; ++i) {
    total = total + beside(*module, loss(*replicas[i], i));
  }
  total.backward();
  const std::vector<at::Tensor> gradients = take_gradients(*module);
  ASSERT_EQ(gradients.size(), expected.size());
  for (size_t p = 0; p < expected.size(); ++p) {
    EXPECT_THAT(gradients[p], testing::AllClose(expected[p], tolerance)) << "parameter " << p;
  }
}

}  // namespace lockstep::replicate
