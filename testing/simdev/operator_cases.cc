// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/operator_cases.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <optional>

#include "testing/matchers.h"
#include "testing/random.h"
#include "testing/simdev/counters.h"
#include "testing/simdev/simdev.h"
#include "testing/simdev/test_environment.h"

namespace lockstep::simdev {
namespace {

using lockstep::testing::AllClose;
using lockstep::testing::BitwiseEqual;
using lockstep::testing::random_tensor;

[[maybe_unused]] const bool kDevicesInUse = use_in_tests();

constexpr uint64_t kSeed = 7;
constexpr int kDevice = 1;  // the current device is 0
constexpr lockstep::testing::Tolerance kTolerance{1e-5, 1e-5};

struct Results {
  std::vector<at::Tensor> outputs, gradients, buffers;
};

// A weighted sum, so that no gradient vanishes by symmetry.
at::Tensor loss_of(const std::vector<at::Tensor>& outputs) {
  at::Tensor loss;
  uint64_t seed = 1000;
  for (const at::Tensor& output : outputs) {
    if (!output.requires_grad()) {
      continue;
    }
    const at::Tensor real = output.is_complex() ? at::view_as_real(output.resolve_conj()) : output;
    const at::Tensor weights = random_tensor(real.sizes(), ++seed, at::kFloat);
    const at::Tensor term = (real * weights.to(real.options())).sum();
    loss = loss.defined() ? loss + term : term;
  }
  return loss;
}

at::Tensor host_copy(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.detach().cpu().clone() : tensor;
}

Results run_on(const OperatorCase& operator_case, c10::Device device) {
  at::manual_seed(kSeed);
  Inputs inputs(device);
  const Outputs outputs = operator_case.run(inputs);
  Results results;
  for (const at::Tensor& output : outputs.tensors()) {
    if (!outputs.are_on_host()) {
      EXPECT_EQ(output.device(), device);
    }
    results.outputs.push_back(host_copy(output));
  }
  const at::Tensor loss = loss_of(outputs.tensors());
  if (loss.defined()) {
    loss.backward();
  }
  for (const at::Tensor& leaf : inputs.leaves()) {
    if (leaf.grad().defined()) {
      EXPECT_EQ(leaf.grad().device(), device);
    }
    results.gradients.push_back(host_copy(leaf.grad()));
  }
  for (const at::Tensor& buffer : inputs.buffers()) {
    results.buffers.push_back(host_copy(buffer));
  }
  return results;
}

void expect_equal(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& expected,
                  bool bit_for_bit, const char* what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    if (bit_for_bit) {
      EXPECT_THAT(got[i], BitwiseEqual(expected[i])) << what << " " << i;
    } else {
      EXPECT_THAT(got[i], AllClose(expected[i], kTolerance)) << what << " " << i;
    }
  }
}

}  // namespace

Outputs Outputs::on_host(std::vector<at::Tensor> tensors) {
  Outputs outputs(std::move(tensors));
  outputs.are_on_host_ = true;
  return outputs;
}

at::Tensor Inputs::leaf(const at::Tensor& values) {
  leaves_.push_back(values.to(device_).requires_grad_(true));
  return leaves_.back();
}

at::Tensor Inputs::normal(at::IntArrayRef sizes, at::ScalarType dtype) {
  return random_tensor(sizes, ++seed_, dtype);
}

at::Tensor Inputs::fractions(at::IntArrayRef sizes) {
  return normal(sizes, at::kFloat).sigmoid() * 0.8 + 0.1;
}

void Inputs::compare_parameters(const std::vector<at::Tensor>& parameters,
                                const std::vector<at::Tensor>& buffers) {
  leaves_.insert(leaves_.end(), parameters.begin(), parameters.end());
  buffers_.insert(buffers_.end(), buffers.begin(), buffers.end());
  at::manual_seed(kSeed);  // the CPU's generator made the first values of the module
}

void expect_as_on_cpu(const OperatorCase& operator_case) {
  const Results expected = run_on(operator_case, c10::Device(c10::kCPU));
  const int64_t held = counters(kDevice).live_bytes;
  const int64_t elsewhere = counters(0).allocations;
  const Results got = run_on(operator_case, device(kDevice));
  const bool bit_for_bit = operator_case.why_close == nullptr;
  expect_equal(got.outputs, expected.outputs, bit_for_bit, "output");
  expect_equal(got.gradients, expected.gradients, bit_for_bit, "gradient of leaf");
  expect_equal(got.buffers, expected.buffers, bit_for_bit, "buffer");
  EXPECT_EQ(counters(kDevice).live_bytes, held) << "something is left on the device";
  EXPECT_EQ(counters(0).allocations, elsewhere) << "something was made on the current device";
}

std::string operator_case_name(const ::testing::TestParamInfo<OperatorCase>& info) {
  return info.param.name;
}

std::ostream& operator<<(std::ostream& os, const OperatorCase& operator_case) {
  return os << operator_case.name;
}

}  // namespace lockstep::simdev
