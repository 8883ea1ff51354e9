// SPDX-License-Identifier: Apache-2.0
#include "testing/random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

namespace lockstep::testing {

at::Tensor random_tensor(at::IntArrayRef sizes, uint64_t seed, at::ScalarType dtype) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  const auto options = at::TensorOptions().device(at::kCPU);
  if (at::isFloatingType(dtype) || at::isComplexType(dtype)) {
    // Drawn in double, then rounded: the values of two types agree as far as both can hold them.
    const auto drawn = at::isComplexType(dtype) ? at::kComplexDouble : at::kDouble;
    return at::randn(sizes, generator, options.dtype(drawn)).to(dtype);
  }
  if (dtype == at::kBool) {
    return at::randint(0, 2, sizes, generator, options.dtype(dtype));
  }
  const int64_t low = at::isSignedType(dtype) ? -10 : 0;
  return at::randint(low, 11, sizes, generator, options.dtype(at::kLong)).to(dtype);
}

}  // namespace lockstep::testing
