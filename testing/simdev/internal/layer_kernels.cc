// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/layer_kernels.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <tuple>

#include "testing/simdev/internal/generator.h"
#include "testing/simdev/internal/kernel_call.h"

namespace lockstep::simdev::internal {
namespace {

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                       at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, int64_t groups) {
  KernelCall call("aten::convolution");
  const at::Tensor x = call.read(input, "input"), w = call.read(weight, "weight");
  const std::optional<at::Tensor> b = call.read(bias, "bias");
  const KernelBody running = call.launch();
  return call.result(
      at::convolution(x, w, b, stride, padding, dilation, transposed, output_padding, groups));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& weight,
    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
    at::IntArrayRef output_padding, int64_t groups, std::array<bool, 3> output_mask) {
  KernelCall call("aten::convolution_backward");
  const at::Tensor grad = call.read(grad_output, "grad_output"), x = call.read(input, "input"),
                   w = call.read(weight, "weight");
  const int64_t channels = transposed ? weight.size(1) * groups : weight.size(0);
  const KernelBody running = call.launch();
  const auto [grad_input, grad_weight, grad_bias] =
      at::convolution_backward(grad, x, w, at::IntArrayRef{channels}, stride, padding, dilation,
                               transposed, output_padding, groups, output_mask);
  return {call.result(grad_input), call.result(grad_weight), call.result(grad_bias)};
}

// The values that LibTorch's composite dropout gives on the CPU from the same generator.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p,
                                                  std::optional<bool> train) {
  KernelCall call("aten::native_dropout");
  const at::Tensor x = call.read(input, "input");
  const KernelBody running = call.launch();
  const at::TensorOptions bools = x.options().dtype(at::kBool);
  if (!train.value_or(true)) {
    return {call.result(x.clone()), call.result(at::ones_like(x, bools))};
  }
  if (p >= 1) {
    return {call.result(at::zeros_like(x)), call.result(at::zeros_like(x, bools))};
  }
  const at::Tensor noise =
      at::empty_like(x).bernoulli_(1 - p, host_generator(default_generator(call.device())));
  const at::Tensor mask = noise.to(at::kBool);
  return {call.result(x * noise.div_(1 - p)), call.result(mask)};
}

}  // namespace

void register_layer_kernels(torch::Library& library) {
  library.impl("convolution_overrideable", convolution);
  library.impl("convolution_backward_overrideable", convolution_backward);
  library.impl("native_dropout", native_dropout);
}

}  // namespace lockstep::simdev::internal
