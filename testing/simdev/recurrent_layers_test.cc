// SPDX-License-Identifier: Apache-2.0
// Recurrent layers, attention and transformers of torch::nn, forward and backward.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn.h>

#include <tuple>
#include <type_traits>
#include <vector>

#include "testing/simdev/operator_cases.h"

namespace lockstep::simdev {
namespace {

namespace nn = torch::nn;

constexpr const char* kFusedCell =
    "LibTorch wants the cells of a device fused, which adds in another order";
constexpr const char* kComposed = "the CPU fuses layer norm or attention; a device composes them";

// Output, then the states.
template <class Result>
Outputs flat(const Result& result) {
  const auto& [output, states] = result;
  if constexpr (std::is_same_v<std::decay_t<decltype(states)>, at::Tensor>) {
    return std::vector<at::Tensor>{output, states};
  } else {
    return std::vector<at::Tensor>{output, std::get<0>(states), std::get<1>(states)};
  }
}

const OperatorCase kRecurrent[] = {
    {"RNN", [](Inputs& in) { return flat(in.layer(nn::RNN(5, 7))(in.real(6, 4, 5))); },
     "products of the gates are taken together or apart"},
    {"RNNRelu",
     [](Inputs& in) {
       return flat(
           in.layer(nn::RNN(nn::RNNOptions(5, 7).nonlinearity(torch::kReLU)))(in.real(6, 4, 5)));
     },
     "products of the gates are taken together or apart"},
    {"LSTM", [](Inputs& in) { return flat(in.layer(nn::LSTM(5, 7))(in.real(6, 4, 5))); },
     kFusedCell},
    {"LSTMTwoLayersBothWays",
     [](Inputs& in) {
       return flat(in.layer(nn::LSTM(nn::LSTMOptions(5, 7).num_layers(2).bidirectional(true)))(
           in.real(6, 4, 5)));
     },
     kFusedCell},
    {"LSTMBatchFirst",
     [](Inputs& in) {
       return flat(in.layer(nn::LSTM(nn::LSTMOptions(5, 7).batch_first(true)))(in.real(4, 6, 5)));
     },
     kFusedCell},
    {"LSTMWithoutBias",
     [](Inputs& in) {
       return flat(in.layer(nn::LSTM(nn::LSTMOptions(5, 7).bias(false)))(in.real(6, 4, 5)));
     },
     kFusedCell},
    {"LSTMWithStates",
     [](Inputs& in) {
       return flat(in.layer(nn::LSTM(5, 7))(in.real(6, 4, 5),
                                            std::make_tuple(in.real(1, 4, 7), in.real(1, 4, 7))));
     },
     kFusedCell},
    {"LSTMPacked",
     [](Inputs& in) {
       const auto packed =
           nn::utils::rnn::pack_padded_sequence(in.real(6, 3, 5), at::tensor({6, 4, 2}, at::kLong));
       return std::get<0>(in.layer(nn::LSTM(5, 7))->forward_with_packed_input(packed)).data();
     },
     kFusedCell},
    {"LSTMSecondOrder",
     [](Inputs& in) {
       auto lstm = in.layer(nn::LSTM(3, 4));
       const at::Tensor x = in.real(2, 2, 3);
       const at::Tensor loss = std::get<0>(lstm(x)).pow(2).sum();
       return torch::autograd::grad({loss}, {x}, {}, true, true)[0].pow(2).sum();
     },
     kFusedCell},
    {"GRU", [](Inputs& in) { return flat(in.layer(nn::GRU(5, 7))(in.real(6, 4, 5))); }, kFusedCell},
    {"GRUTwoLayersBothWays",
     [](Inputs& in) {
       return flat(in.layer(nn::GRU(nn::GRUOptions(5, 7).num_layers(2).bidirectional(true)))(
           in.real(6, 4, 5)));
     },
     kFusedCell},
    {"GRUWithoutBias",
     [](Inputs& in) {
       return flat(in.layer(nn::GRU(nn::GRUOptions(5, 7).bias(false)))(in.real(6, 4, 5)));
     },
     kFusedCell},
    {"RNNCell",
     [](Inputs& in) { return in.layer(nn::RNNCell(5, 7))(in.real(4, 5), in.real(4, 7)); }},
    {"LSTMCell",
     [](Inputs& in) {
       return in.layer(nn::LSTMCell(5, 7))(in.real(4, 5),
                                           std::make_tuple(in.real(4, 7), in.real(4, 7)));
     },
     kFusedCell},
    {"GRUCell",
     [](Inputs& in) { return in.layer(nn::GRUCell(5, 7))(in.real(4, 5), in.real(4, 7)); },
     kFusedCell},
};
LOCKSTEP_OPERATOR_TABLE(RecurrentTest, kRecurrent);

const OperatorCase kAttention[] = {
    {"scaled_dot_product",
     [](Inputs& in) {
       return at::scaled_dot_product_attention(in.real(2, 2, 5, 8), in.real(2, 2, 5, 8),
                                               in.real(2, 2, 5, 8));
     },
     kComposed},
    {"scaled_dot_product_causal",
     [](Inputs& in) {
       return at::scaled_dot_product_attention(in.real(2, 2, 5, 8), in.real(2, 2, 5, 8),
                                               in.real(2, 2, 5, 8), {}, 0.0, true);
     },
     kComposed},
    {"MultiheadAttention",
     [](Inputs& in) {
       return in.layer(nn::MultiheadAttention(8, 2))(in.real(5, 2, 8), in.real(6, 2, 8),
                                                     in.real(6, 2, 8));
     },
     kComposed},
    {"MultiheadAttentionMasked",
     [](Inputs& in) {
       const at::Tensor x = in.real(5, 2, 8);
       const at::Tensor mask =
           at::ones({5, 5}, at::TensorOptions(in.device())).triu(1).to(at::kBool);
       return in.layer(nn::MultiheadAttention(8, 2))(x, x, x, at::Tensor(), true, mask);
     },
     kComposed},
    {"TransformerEncoderLayer",
     [](Inputs& in) {
       return in.layer(nn::TransformerEncoderLayer(
           nn::TransformerEncoderLayerOptions(8, 2).dropout(0).dim_feedforward(16)))(
           in.real(5, 2, 8));
     },
     kComposed},
    {"TransformerEncoderLayerGelu",
     [](Inputs& in) {
       return in.layer(nn::TransformerEncoderLayer(
           nn::TransformerEncoderLayerOptions(8, 2).dropout(0).dim_feedforward(16).activation(
               torch::kGELU)))(in.real(5, 2, 8));
     },
     kComposed},
    {"TransformerEncoder",
     [](Inputs& in) {
       const nn::TransformerEncoderLayer layer(
           nn::TransformerEncoderLayerOptions(8, 2).dropout(0).dim_feedforward(16));
       return in.layer(nn::TransformerEncoder(nn::TransformerEncoderOptions(layer, 2)))(
           in.real(5, 2, 8));
     },
     kComposed},
    {"TransformerDecoderLayer",
     [](Inputs& in) {
       return in.layer(nn::TransformerDecoderLayer(
           nn::TransformerDecoderLayerOptions(8, 2).dropout(0).dim_feedforward(16)))(
           in.real(5, 2, 8), in.real(6, 2, 8));
     },
     kComposed},
    {"Transformer",
     [](Inputs& in) {
       return in.layer(
           nn::Transformer(nn::TransformerOptions(8, 2, 1, 1).dropout(0).dim_feedforward(16)))(
           in.real(6, 2, 8), in.real(5, 2, 8));
     },
     kComposed},
    {"TransformerWithDropout",
     [](Inputs& in) {
       return in.layer(nn::TransformerEncoderLayer(
           nn::TransformerEncoderLayerOptions(8, 2).dropout(0.5).dim_feedforward(16)))(
           in.real(5, 2, 8));
     },
     kComposed},
};
LOCKSTEP_OPERATOR_TABLE(AttentionTest, kAttention);

}  // namespace
}  // namespace lockstep::simdev
