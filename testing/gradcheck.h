// SPDX-License-Identifier: Apache-2.0
// gradcheck, gradgradcheck: compare autograd's gradients with numeric central differences.
// Use them for every differentiable function. The function must be deterministic, and smooth
// around the inputs. Time grows with (input elements) x (cost of the function): keep inputs small.
//   at::Tensor x = random_tensor({3, 2}, 1).requires_grad_();
//   EXPECT_TRUE(gradcheck([&](const auto& in) { return scatter(in[0], devices); }, {x}));
#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep::testing {

// A function of several tensors with several outputs; some outputs may need no gradient.
using TensorFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

struct GradcheckOptions {
  double eps = 1e-6;  // step of the central difference
  double atol = 1e-5;
  double rtol = 1e-3;
  uint64_t seed = 0;  // of the random upstream gradients
};

// Succeeds if the gradients of `function` at `inputs`, with respect to every input that requires
// grad, agree with central differences. Four kinds of upstream gradient are tried: random for all
// outputs; random with permuted strides; expanded from one number, as sum() makes it; and random
// for one output at a time, when the other outputs' gradients are undefined.
// An undefined gradient counts as zero, and so does the gradient of an output that requires none.
// Failure names the upstream, the input, the index, both values and their distance.
// Devices: inputs and outputs on any.
// Throws:  nothing of its own; what `function` and its backward throw passes through. Inputs that
//          cannot be checked (not double or complex double, none requires grad) are a failure.
::testing::AssertionResult gradcheck(const TensorFunction& function,
                                     const std::vector<at::Tensor>& inputs,
                                     const GradcheckOptions& options = {});

// As gradcheck, for the gradients of `function` as a function of the inputs and of the upstream
// gradients: checks second order gradients.
::testing::AssertionResult gradgradcheck(const TensorFunction& function,
                                         const std::vector<at::Tensor>& inputs,
                                         const GradcheckOptions& options = {});

}  // namespace lockstep::testing
