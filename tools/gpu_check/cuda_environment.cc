// SPDX-License-Identifier: Apache-2.0
// Makes a GoogleTest program one for CUDA devices: without one it fails, and no test is run or
// skipped in silence. Float32 is computed as such, and by the same algorithm each time, for tests
// that compare bits.
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "testing/gpu_device_sets.h"

namespace lockstep::gpu_check {
namespace {

class CudaEnvironment final : public ::testing::Environment {
 public:
  void SetUp() override {
    if (lockstep::testing::cuda_device_count() == 0) {
      FAIL() << "no CUDA device: this program checks lockstep on one";
    }
    at::globalContext().setAllowTF32CuBLAS(false);
    at::globalContext().setAllowTF32CuDNN(false);
    at::globalContext().setBenchmarkCuDNN(false);
    at::globalContext().setDeterministicCuDNN(true);
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  }
};

// GoogleTest's from here on.
const ::testing::Environment* const kEnvironment =
    ::testing::AddGlobalTestEnvironment(new CudaEnvironment());

}  // namespace
}  // namespace lockstep::gpu_check
