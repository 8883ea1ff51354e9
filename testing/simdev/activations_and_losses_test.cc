// SPDX-License-Identifier: Apache-2.0
// Activations, dropout and losses of torch::nn, forward and backward.
#include <ATen/ATen.h>
#include <torch/nn.h>

#include "testing/simdev/operator_cases.h"

namespace lockstep::simdev {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

constexpr const char* kComposed = "the CPU fuses its backward; a device composes it";

const OperatorCase kActivations[] = {
    {"ReLU", [](Inputs& in) { return in.layer(nn::ReLU())(in.real(4, 5)); }},
    {"ReLU6", [](Inputs& in) { return in.layer(nn::ReLU6())(in.real(4, 5)); }},
    {"LeakyReLU",
     [](Inputs& in) {
       return in.layer(nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.1)))(in.real(4, 5));
     }},
    {"PReLU",
     [](Inputs& in) {
       return in.layer(nn::PReLU(nn::PReLUOptions().num_parameters(5)))(in.real(4, 5));
     }},
    {"RReLU", [](Inputs& in) { return in.layer(nn::RReLU())(in.real(4, 5)); }},
    {"ELU", [](Inputs& in) { return in.layer(nn::ELU())(in.real(4, 5)); }},
    {"SELU", [](Inputs& in) { return in.layer(nn::SELU())(in.real(4, 5)); }},
    {"CELU", [](Inputs& in) { return in.layer(nn::CELU())(in.real(4, 5)); }},
    {"GELU", [](Inputs& in) { return in.layer(nn::GELU())(in.real(4, 5)); }},
    {"SiLU", [](Inputs& in) { return in.layer(nn::SiLU())(in.real(4, 5)); }, kComposed},
    {"Mish", [](Inputs& in) { return in.layer(nn::Mish())(in.real(4, 5)); }, kComposed},
    {"Sigmoid", [](Inputs& in) { return in.layer(nn::Sigmoid())(in.real(4, 5)); }},
    {"LogSigmoid", [](Inputs& in) { return in.layer(nn::LogSigmoid())(in.real(4, 5)); }},
    {"Tanh", [](Inputs& in) { return in.layer(nn::Tanh())(in.real(4, 5)); }},
    {"Tanhshrink", [](Inputs& in) { return in.layer(nn::Tanhshrink())(in.real(4, 5)); }},
    {"Hardtanh", [](Inputs& in) { return in.layer(nn::Hardtanh())(in.real(4, 5)); }},
    {"Hardshrink", [](Inputs& in) { return in.layer(nn::Hardshrink())(in.real(4, 5)); }},
    {"Softshrink", [](Inputs& in) { return in.layer(nn::Softshrink())(in.real(4, 5)); }},
    {"hardswish", [](Inputs& in) { return at::hardswish(in.real(4, 5)); }},
    {"hardsigmoid", [](Inputs& in) { return at::hardsigmoid(in.real(4, 5)); }},
    {"Softplus", [](Inputs& in) { return in.layer(nn::Softplus())(in.real(4, 5)); }},
    {"Softsign", [](Inputs& in) { return in.layer(nn::Softsign())(in.real(4, 5)); }},
    {"Threshold", [](Inputs& in) { return in.layer(nn::Threshold(0.1, 20))(in.real(4, 5)); }},
    {"Softmax", [](Inputs& in) { return in.layer(nn::Softmax(1))(in.real(4, 5)); }},
    {"Softmin", [](Inputs& in) { return in.layer(nn::Softmin(1))(in.real(4, 5)); }},
    {"LogSoftmax", [](Inputs& in) { return in.layer(nn::LogSoftmax(1))(in.real(4, 5)); }},
    {"Softmax2d", [](Inputs& in) { return in.layer(nn::Softmax2d())(in.real(2, 3, 4, 4)); }},
    {"GLU", [](Inputs& in) { return in.layer(nn::GLU())(in.real(4, 6)); }},
    {"gumbel_softmax", [](Inputs& in) { return F::gumbel_softmax(in.real(4, 6)); }},
    {"Dropout", [](Inputs& in) { return in.layer(nn::Dropout(0.5))(in.real(4, 6)); }},
    {"DropoutEval",
     [](Inputs& in) {
       auto dropout = in.layer(nn::Dropout(0.5));
       dropout->eval();
       return dropout(in.real(4, 6));
     }},
    {"Dropout2d", [](Inputs& in) { return in.layer(nn::Dropout2d(0.5))(in.real(4, 6, 3, 3)); }},
    {"AlphaDropout", [](Inputs& in) { return in.layer(nn::AlphaDropout(0.5))(in.real(4, 6)); }},
};
LOCKSTEP_OPERATOR_TABLE(ActivationTest, kActivations);

template <class... Sizes>
at::Tensor signs(Inputs& in, Sizes... sizes) {
  return in.coins(sizes...) * 2.0F - 1;
}

const OperatorCase kLosses[] = {
    {"L1Loss", [](Inputs& in) { return in.layer(nn::L1Loss())(in.real(4, 5), in.plain(4, 5)); }},
    {"MSELoss", [](Inputs& in) { return in.layer(nn::MSELoss())(in.real(4, 5), in.real(4, 5)); }},
    {"SmoothL1Loss",
     [](Inputs& in) { return in.layer(nn::SmoothL1Loss())(in.real(4, 5), in.plain(4, 5)); }},
    {"HuberLoss",
     [](Inputs& in) { return in.layer(nn::HuberLoss())(in.real(4, 5), in.plain(4, 5)); }},
    {"CrossEntropyLoss",
     [](Inputs& in) { return in.layer(nn::CrossEntropyLoss())(in.real(4, 5), in.integers(5, 4)); }},
    {"CrossEntropyLossSmoothed",
     [](Inputs& in) {
       return in.layer(nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().label_smoothing(0.1)))(
           in.real(4, 5), in.integers(5, 4));
     }},
    {"CrossEntropyLoss2d",
     [](Inputs& in) {
       return in.layer(nn::CrossEntropyLoss())(in.real(2, 5, 3, 3), in.integers(5, 2, 3, 3));
     }},
    {"NLLLoss",
     [](Inputs& in) {
       return in.layer(nn::NLLLoss(nn::NLLLossOptions().weight(in.unit(5).detach())))(
           in.real(4, 5), in.integers(5, 4));
     }},
    {"BCELoss",
     [](Inputs& in) { return in.layer(nn::BCELoss())(in.unit(4, 5), in.unit(4, 5).detach()); }},
    {"BCEWithLogitsLoss",
     [](Inputs& in) {
       return in.layer(nn::BCEWithLogitsLoss())(in.real(4, 5), in.unit(4, 5).detach());
     }},
    {"KLDivLoss",
     [](Inputs& in) { return in.layer(nn::KLDivLoss())(in.real(4, 5), in.unit(4, 5)); }},
    {"PoissonNLLLoss",
     [](Inputs& in) {
       return in.layer(nn::PoissonNLLLoss())(in.real(4, 5), in.unit(4, 5).detach());
     }},
    {"HingeEmbeddingLoss",
     [](Inputs& in) { return in.layer(nn::HingeEmbeddingLoss())(in.real(4, 5), signs(in, 4, 5)); }},
    {"CosineEmbeddingLoss",
     [](Inputs& in) {
       return in.layer(nn::CosineEmbeddingLoss())(in.real(4, 5), in.real(4, 5), signs(in, 4));
     }},
    {"MarginRankingLoss",
     [](Inputs& in) {
       return in.layer(nn::MarginRankingLoss())(in.real(4), in.real(4), signs(in, 4));
     }},
    {"MultiMarginLoss",
     [](Inputs& in) { return in.layer(nn::MultiMarginLoss())(in.real(4, 5), in.integers(5, 4)); }},
    {"MultiLabelMarginLoss",
     [](Inputs& in) {
       return in.layer(nn::MultiLabelMarginLoss())(in.real(4, 5), in.integers(5, 4, 5));
     }},
    {"MultiLabelSoftMarginLoss",
     [](Inputs& in) {
       return in.layer(nn::MultiLabelSoftMarginLoss())(in.real(4, 5), in.unit(4, 5).detach());
     }},
    {"SoftMarginLoss",
     [](Inputs& in) { return in.layer(nn::SoftMarginLoss())(in.real(4, 5), signs(in, 4, 5)); }},
    {"TripletMarginLoss",
     [](Inputs& in) {
       return in.layer(nn::TripletMarginLoss())(in.real(4, 5), in.real(4, 5), in.real(4, 5));
     }},
    {"CTCLoss",
     [](Inputs& in) {
       const at::Tensor lengths = at::full({2}, 3, at::TensorOptions(in.device()).dtype(at::kLong));
       return in.layer(nn::CTCLoss())(in.real(8, 2, 5).log_softmax(2), in.integers(4, 2, 3) + 1,
                                      lengths + 5, lengths);
     }},
    {"AdaptiveLogSoftmax",
     [](Inputs& in) {
       auto layer = in.layer(
           nn::AdaptiveLogSoftmaxWithLoss(nn::AdaptiveLogSoftmaxWithLossOptions(16, 12, {4, 8})));
       return layer(in.real(6, 16), in.integers(12, 6)).output;
     }},
};
LOCKSTEP_OPERATOR_TABLE(LossTest, kLosses);

}  // namespace
}  // namespace lockstep::simdev
