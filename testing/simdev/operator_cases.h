// SPDX-License-Identifier: Apache-2.0
// operator_cases.h: tables of operators and layers that must give on a simulated device what they
// give on the CPU, forward and backward. A row is one line:
//   const OperatorCase kCases[] = {
//       {"add", [](Inputs& in) { return in.real(4, 3) + in.real(4, 3); }},
//       {"LSTM", [](Inputs& in) { ... }, "the device's cell adds in another order"},
//   };
//   LOCKSTEP_OPERATOR_TABLE(PointwiseTest, kCases);
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace lockstep::simdev {

// What a case returns: any number of tensors, of the device where the case runs.
class Outputs {
 public:
  Outputs(at::Tensor tensor) : tensors_({std::move(tensor)}) {}
  Outputs(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {}
  template <class... Tensors>
  Outputs(const std::tuple<Tensors...>& tensors)
      : tensors_(std::apply([](const auto&... each) { return std::vector<at::Tensor>{each...}; },
                            tensors)) {}

  // The case brought its result to the host itself.
  static Outputs on_host(std::vector<at::Tensor> tensors);

  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  bool are_on_host() const { return are_on_host_; }

 private:
  std::vector<at::Tensor> tensors_;
  bool are_on_host_ = false;
};

// Makes a case's inputs on the device where it runs, with the same values on each.
class Inputs {
 public:
  explicit Inputs(c10::Device device) : device_(device) {}

  c10::Device device() const { return device_; }

  // Leaves whose gradients are compared: normal values, values in [0.1, 0.9], complex ones.
  template <class... Sizes>
  at::Tensor real(Sizes... sizes) {
    return real_of(at::kFloat, sizes...);
  }
  template <class... Sizes>
  at::Tensor real_of(at::ScalarType dtype, Sizes... sizes) {
    return leaf(normal({sizes...}, dtype));
  }
  template <class... Sizes>
  at::Tensor unit(Sizes... sizes) {
    return leaf(fractions({sizes...}));
  }
  template <class... Sizes>
  at::Tensor complex(Sizes... sizes) {
    return real_of(at::kComplexFloat, sizes...);
  }

  // Inputs that need no gradient: normal values, integers in [0, below), coins.
  template <class... Sizes>
  at::Tensor plain(Sizes... sizes) {
    return plain_of(at::kFloat, sizes...);
  }
  template <class... Sizes>
  at::Tensor plain_of(at::ScalarType dtype, Sizes... sizes) {
    return normal({sizes...}, dtype).to(device_);
  }
  template <class... Sizes>
  at::Tensor integers(int64_t below, Sizes... sizes) {
    return normal({sizes...}, at::kLong).abs().remainder(below).to(device_);
  }
  template <class... Sizes>
  at::Tensor coins(Sizes... sizes) {
    return normal({sizes...}, at::kBool).to(device_);
  }

  // Moves a module, by its holder, to the device, and seeds all generators again. The gradients of
  // its parameters and its buffers are compared.
  template <class Holder>
  Holder layer(Holder holder) {
    holder->to(device_);
    compare_parameters(holder->parameters(), holder->buffers());
    return holder;
  }
  void compare_parameters(const std::vector<at::Tensor>& parameters,
                          const std::vector<at::Tensor>& buffers);

  const std::vector<at::Tensor>& leaves() const { return leaves_; }
  const std::vector<at::Tensor>& buffers() const { return buffers_; }

 private:
  at::Tensor normal(at::IntArrayRef sizes, at::ScalarType dtype);
  at::Tensor fractions(at::IntArrayRef sizes);
  at::Tensor leaf(const at::Tensor& values);

  c10::Device device_;
  uint64_t seed_ = 0;
  std::vector<at::Tensor> leaves_, buffers_;
};

struct OperatorCase {
  const char* name;
  std::function<Outputs(Inputs&)> run;
  // Null if the same kernels run in the same order, so that all bits agree. Else the reason why
  // only rtol 1e-5 and atol 1e-5 are asked for.
  const char* why_close = nullptr;
};

// Runs the case on the CPU and on a simulated device that is not the current one, from one seed,
// and expects equal outputs, gradients (of a weighted sum of the outputs) and buffers; nothing
// touched the current device, and nothing is left on either.
void expect_as_on_cpu(const OperatorCase& operator_case);

std::string operator_case_name(const ::testing::TestParamInfo<OperatorCase>& info);
std::ostream& operator<<(std::ostream& os, const OperatorCase& operator_case);

}  // namespace lockstep::simdev

#define LOCKSTEP_OPERATOR_TABLE(Suite, cases)                     \
  class Suite : public ::testing::TestWithParam<OperatorCase> {}; \
  TEST_P(Suite, IsAsOnTheCpu) { expect_as_on_cpu(GetParam()); }   \
  INSTANTIATE_TEST_SUITE_P(Operators, Suite, ::testing::ValuesIn(cases), operator_case_name)
