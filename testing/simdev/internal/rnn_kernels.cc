// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/rnn_kernels.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <optional>
#include <tuple>
#include <vector>

#include "testing/simdev/internal/kernel_call.h"

namespace lockstep::simdev::internal {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

// The gates lie one after the other along dim 1. LSTM: input, forget, cell, output; GRU: reset,
// update, new.
std::vector<at::Tensor> gates_of(const at::Tensor& gates, int64_t count) {
  return gates.chunk(count, 1);
}

at::Tensor add_bias(const at::Tensor& gates, const OptionalTensor& bias) {
  return bias && bias->defined() ? gates + *bias : gates;
}

at::Tensor sum_of_rows(const at::Tensor& grad_gates, bool has_bias) {
  return has_bias ? grad_gates.sum(0) : at::Tensor();
}

// Of a sigmoid or tanh, given its value.
at::Tensor sigmoid_slope(const at::Tensor& value) { return value * (1 - value); }
at::Tensor tanh_slope(const at::Tensor& value) { return 1 - value * value; }

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& input_gates,
                                                         const at::Tensor& hidden_gates,
                                                         const at::Tensor& cx,
                                                         const OptionalTensor& input_bias,
                                                         const OptionalTensor& hidden_bias) {
  KernelCall call("aten::_thnn_fused_lstm_cell");
  const at::Tensor from_input = call.read(input_gates, "input_gates"),
                   from_hidden = call.read(hidden_gates, "hidden_gates"),
                   cell = call.read(cx, "cx");
  const OptionalTensor bias = call.read(input_bias, "input_bias"),
                       bias2 = call.read(hidden_bias, "hidden_bias");
  const KernelBody running = call.launch();
  const auto gates = gates_of(add_bias(from_input, bias) + add_bias(from_hidden, bias2), 4);
  const at::Tensor in = gates[0].sigmoid(), forget = gates[1].sigmoid(), fresh = gates[2].tanh(),
                   out = gates[3].sigmoid();
  const at::Tensor cy = forget * cell + in * fresh;
  return {call.result(out * cy.tanh()), call.result(cy),
          call.result(at::cat({in, forget, fresh, out}, 1))};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(
    const OptionalTensor& grad_hy, const OptionalTensor& grad_cy, const at::Tensor& cx,
    const at::Tensor& cy, const at::Tensor& workspace, bool has_bias) {
  KernelCall call("aten::_thnn_fused_lstm_cell_backward");
  const OptionalTensor from_hidden = call.read(grad_hy, "grad_hy"),
                       from_cell = call.read(grad_cy, "grad_cy");
  const at::Tensor cell = call.read(cx, "cx"), next_cell = call.read(cy, "cy"),
                   gates_after = call.read(workspace, "workspace");
  const KernelBody running = call.launch();
  const bool has_hidden = from_hidden && from_hidden->defined();
  const bool has_cell = from_cell && from_cell->defined();
  if (!has_hidden && !has_cell) {
    return {};
  }
  const auto gates = gates_of(gates_after, 4);
  const at::Tensor &in = gates[0], &forget = gates[1], &fresh = gates[2], &out = gates[3];
  const at::Tensor squashed = next_cell.tanh();
  const at::Tensor hidden = has_hidden ? *from_hidden : at::zeros_like(next_cell);
  at::Tensor grad_cell = hidden * out * tanh_slope(squashed);
  if (has_cell) {
    grad_cell = grad_cell + *from_cell;
  }
  const at::Tensor grad_gates =
      at::cat({grad_cell * fresh * sigmoid_slope(in), grad_cell * cell * sigmoid_slope(forget),
               grad_cell * in * tanh_slope(fresh), hidden * squashed * sigmoid_slope(out)},
              1);
  return {call.result(grad_gates), call.result(grad_cell * forget),
          call.result(sum_of_rows(grad_gates, has_bias))};
}

std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor& input_gates,
                                            const at::Tensor& hidden_gates, const at::Tensor& hx,
                                            const OptionalTensor& input_bias,
                                            const OptionalTensor& hidden_bias) {
  KernelCall call("aten::_thnn_fused_gru_cell");
  const at::Tensor from_input = call.read(input_gates, "input_gates"),
                   from_hidden = call.read(hidden_gates, "hidden_gates"),
                   hidden = call.read(hx, "hx");
  const OptionalTensor bias = call.read(input_bias, "input_bias"),
                       bias2 = call.read(hidden_bias, "hidden_bias");
  const KernelBody running = call.launch();
  const auto in = gates_of(add_bias(from_input, bias), 3),
             back = gates_of(add_bias(from_hidden, bias2), 3);
  const at::Tensor reset = (in[0] + back[0]).sigmoid(), update = (in[1] + back[1]).sigmoid(),
                   fresh = (in[2] + reset * back[2]).tanh();
  return {call.result(fresh + update * (hidden - fresh)),
          call.result(at::cat({reset, update, fresh, hidden, back[2]}, 1))};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(
    const at::Tensor& grad_hy, const at::Tensor& workspace, bool has_bias) {
  KernelCall call("aten::_thnn_fused_gru_cell_backward");
  const at::Tensor grad = call.read(grad_hy, "grad_hy"), saved = call.read(workspace, "workspace");
  const KernelBody running = call.launch();
  const auto parts = gates_of(saved, 5);
  const at::Tensor &reset = parts[0], &update = parts[1], &fresh = parts[2], &hidden = parts[3],
                   &back = parts[4];
  const at::Tensor grad_update = grad * (hidden - fresh) * sigmoid_slope(update),
                   grad_fresh = grad * (1 - update) * tanh_slope(fresh),
                   grad_reset = grad_fresh * back * sigmoid_slope(reset);
  const at::Tensor grad_input = at::cat({grad_reset, grad_update, grad_fresh}, 1),
                   grad_hidden = at::cat({grad_reset, grad_update, grad_fresh * reset}, 1);
  return {call.result(grad_input), call.result(grad_hidden), call.result(grad * update),
          call.result(sum_of_rows(grad_input, has_bias)),
          call.result(sum_of_rows(grad_hidden, has_bias))};
}

}  // namespace

void register_rnn_kernels(torch::Library& library) {
  library.impl("_thnn_fused_lstm_cell", lstm_cell);
  library.impl("_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward);
  library.impl("_thnn_fused_gru_cell", gru_cell);
  library.impl("_thnn_fused_gru_cell_backward", gru_cell_backward);
}

}  // namespace lockstep::simdev::internal
