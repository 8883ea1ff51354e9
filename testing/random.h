// SPDX-License-Identifier: Apache-2.0
// random_tensor: test data that is the same in every run and in every order of tests.
// Use it for inputs of tests. It neither reads nor moves LibTorch's global generators, so a test
// that checks those can use it too.
//   at::Tensor batch = lockstep::testing::random_tensor({8, 3}, /*seed=*/1);
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::testing {

// Standard normal values (complex: both parts) for floating types, integers in [-10, 10] for
// signed ones, in [0, 10] for unsigned ones, and fair coins for bool.
// Devices: the result is a contiguous CPU tensor that needs no gradient.
// Threads: safe; equal arguments give equal values on every thread.
at::Tensor random_tensor(at::IntArrayRef sizes, uint64_t seed, at::ScalarType dtype = at::kDouble);

}  // namespace lockstep::testing
