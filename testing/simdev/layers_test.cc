// SPDX-License-Identifier: Apache-2.0
// Layers of torch::nn, forward and backward: linear, convolution, pooling, normalisation, padding,
// activation, embedding, losses.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn.h>

#include "testing/simdev/operator_cases.h"

namespace lockstep::simdev {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

const OperatorCase kLinear[] = {
    {"Linear", [](Inputs& in) { return in.layer(nn::Linear(5, 3))(in.real(4, 5)); }},
    {"LinearWithoutBias",
     [](Inputs& in) {
       return in.layer(nn::Linear(nn::LinearOptions(5, 3).bias(false)))(in.real(4, 5));
     }},
    {"Bilinear",
     [](Inputs& in) { return in.layer(nn::Bilinear(5, 4, 3))(in.real(2, 5), in.real(2, 4)); }},
    {"Identity", [](Inputs& in) { return in.layer(nn::Identity())(in.real(2, 5)); }},
    {"Flatten", [](Inputs& in) { return in.layer(nn::Flatten())(in.real(2, 3, 4)); }},
    {"Unflatten",
     [](Inputs& in) {
       return in.layer(nn::Unflatten(nn::UnflattenOptions(1, {2, 3})))(in.real(2, 6));
     }},
    {"Sequential",
     [](Inputs& in) {
       return in.layer(nn::Sequential(nn::Linear(5, 4), nn::ReLU(), nn::Linear(4, 3)))
           ->forward(in.real(2, 5));
     }},
    {"CosineSimilarity",
     [](Inputs& in) { return in.layer(nn::CosineSimilarity())(in.real(3, 5), in.real(3, 5)); }},
    {"PairwiseDistance",
     [](Inputs& in) { return in.layer(nn::PairwiseDistance())(in.real(3, 5), in.real(3, 5)); }},
};
LOCKSTEP_OPERATOR_TABLE(LinearLayerTest, kLinear);

const OperatorCase kConvolutions[] = {
    {"Conv1d", [](Inputs& in) { return in.layer(nn::Conv1d(3, 4, 3))(in.real(2, 3, 9)); }},
    {"Conv2d",
     [](Inputs& in) {
       return in.layer(nn::Conv2d(nn::Conv2dOptions(3, 4, 3).padding(1)))(in.real(2, 3, 8, 8));
     }},
    {"Conv2dStridedDilated",
     [](Inputs& in) {
       return in.layer(nn::Conv2d(nn::Conv2dOptions(3, 4, 3).stride(2).dilation(2)))(
           in.real(2, 3, 9, 9));
     }},
    {"Conv2dGroups",
     [](Inputs& in) {
       return in.layer(nn::Conv2d(nn::Conv2dOptions(4, 8, 3).groups(2).bias(false)))(
           in.real(2, 4, 8, 8));
     }},
    {"Conv2dDepthwise",
     [](Inputs& in) {
       return in.layer(nn::Conv2d(nn::Conv2dOptions(4, 4, 3).groups(4)))(in.real(2, 4, 8, 8));
     }},
    {"Conv2dSame",
     [](Inputs& in) {
       return in.layer(nn::Conv2d(nn::Conv2dOptions(3, 4, 4).padding(torch::kSame)))(
           in.real(2, 3, 8, 8));
     }},
    {"Conv2dCircular",
     [](Inputs& in) {
       return in.layer(nn::Conv2d(nn::Conv2dOptions(3, 4, 3).padding(1).padding_mode(
           torch::kCircular)))(in.real(2, 3, 8, 8));
     }},
    {"Conv2dChannelsLast",
     [](Inputs& in) {
       return in.layer(nn::Conv2d(3, 4, 3))(
           in.real(2, 3, 8, 8).contiguous(at::MemoryFormat::ChannelsLast));
     }},
    {"Conv3d", [](Inputs& in) { return in.layer(nn::Conv3d(2, 3, 2))(in.real(2, 2, 4, 4, 4)); }},
    {"ConvTranspose1d",
     [](Inputs& in) { return in.layer(nn::ConvTranspose1d(3, 4, 3))(in.real(2, 3, 9)); }},
    {"ConvTranspose2d",
     [](Inputs& in) {
       return in.layer(nn::ConvTranspose2d(
           nn::ConvTranspose2dOptions(4, 6, 3).stride(2).output_padding(1).groups(2)))(
           in.real(2, 4, 5, 5));
     }},
    {"ConvTranspose3d",
     [](Inputs& in) { return in.layer(nn::ConvTranspose3d(2, 3, 2))(in.real(2, 2, 3, 3, 3)); }},
    {"conv_tbc",
     [](Inputs& in) { return at::conv_tbc(in.real(9, 2, 3), in.real(3, 3, 4), in.real(4)); }},
    {"Unfold", [](Inputs& in) { return in.layer(nn::Unfold(3))(in.real(2, 3, 6, 6)); }},
    {"Fold",
     [](Inputs& in) {
       return in.layer(nn::Fold(nn::FoldOptions({4, 5}, 2)))(in.real(2, 12, 12));
     }},
    {"conv_second_order",
     [](Inputs& in) {
       const at::Tensor w = in.real(2, 3, 3, 3);
       const at::Tensor loss = at::conv2d(in.real(2, 3, 6, 6), w).tanh().sum();
       return torch::autograd::grad({loss}, {w}, {}, true, true)[0].pow(2).sum();
     }},
};
LOCKSTEP_OPERATOR_TABLE(ConvolutionTest, kConvolutions);

const OperatorCase kPooling[] = {
    {"MaxPool1d", [](Inputs& in) { return in.layer(nn::MaxPool1d(2))(in.real(2, 3, 8)); }},
    {"MaxPool2d", [](Inputs& in) { return in.layer(nn::MaxPool2d(2))(in.real(2, 3, 8, 8)); }},
    {"MaxPool3d", [](Inputs& in) { return in.layer(nn::MaxPool3d(2))(in.real(2, 3, 4, 4, 4)); }},
    {"AvgPool1d", [](Inputs& in) { return in.layer(nn::AvgPool1d(2))(in.real(2, 3, 8)); }},
    {"AvgPool2d", [](Inputs& in) { return in.layer(nn::AvgPool2d(2))(in.real(2, 3, 8, 8)); }},
    {"AvgPool3d", [](Inputs& in) { return in.layer(nn::AvgPool3d(2))(in.real(2, 3, 4, 4, 4)); }},
    {"AdaptiveAvgPool1d",
     [](Inputs& in) { return in.layer(nn::AdaptiveAvgPool1d(3))(in.real(2, 3, 8)); }},
    {"AdaptiveAvgPool2d",
     [](Inputs& in) { return in.layer(nn::AdaptiveAvgPool2d(3))(in.real(2, 3, 8, 8)); }},
    {"AdaptiveAvgPool3d",
     [](Inputs& in) { return in.layer(nn::AdaptiveAvgPool3d(3))(in.real(2, 3, 4, 4, 4)); }},
    {"AdaptiveMaxPool2d",
     [](Inputs& in) { return in.layer(nn::AdaptiveMaxPool2d(3))(in.real(2, 3, 8, 8)); }},
    {"FractionalMaxPool2d",
     [](Inputs& in) {
       return in.layer(nn::FractionalMaxPool2d(nn::FractionalMaxPool2dOptions(2).output_size(4)))(
           in.real(2, 3, 8, 8));
     }},
    {"LPPool2d",
     [](Inputs& in) {
       return in.layer(nn::LPPool2d(nn::LPPool2dOptions(2, 2)))(in.real(2, 3, 8, 8));
     }},
    {"MaxUnpool2d",
     [](Inputs& in) {
       const auto [pooled, indices] =
           F::max_pool2d_with_indices(in.real(2, 3, 8, 8), F::MaxPool2dFuncOptions(2));
       return in.layer(nn::MaxUnpool2d(2))(pooled, indices);
     }},
    {"UpsampleNearest",
     [](Inputs& in) {
       return in.layer(nn::Upsample(nn::UpsampleOptions().scale_factor(std::vector<double>{2, 2})))(
           in.real(2, 3, 4, 4));
     }},
    {"UpsampleBilinear",
     [](Inputs& in) {
       return in.layer(nn::Upsample(nn::UpsampleOptions()
                                        .size(std::vector<int64_t>{7, 7})
                                        .mode(torch::kBilinear)
                                        .align_corners(false)))(in.real(2, 3, 4, 4));
     }},
    {"UpsampleBicubic",
     [](Inputs& in) {
       return in.layer(nn::Upsample(nn::UpsampleOptions()
                                        .size(std::vector<int64_t>{7, 7})
                                        .mode(torch::kBicubic)
                                        .align_corners(true)))(in.real(2, 3, 4, 4));
     }},
    {"UpsampleTrilinear",
     [](Inputs& in) {
       return in.layer(nn::Upsample(nn::UpsampleOptions()
                                        .size(std::vector<int64_t>{5, 5, 5})
                                        .mode(torch::kTrilinear)
                                        .align_corners(false)))(in.real(1, 2, 3, 3, 3));
     }},
    {"PixelShuffle", [](Inputs& in) { return in.layer(nn::PixelShuffle(2))(in.real(2, 8, 3, 3)); }},
    {"PixelUnshuffle",
     [](Inputs& in) { return in.layer(nn::PixelUnshuffle(2))(in.real(2, 2, 4, 4)); }},
    {"GridSample",
     [](Inputs& in) {
       return F::grid_sample(in.real(1, 2, 4, 4), in.unit(1, 3, 3, 2),
                             F::GridSampleFuncOptions().align_corners(false));
     }},
    {"AffineGrid",
     [](Inputs& in) {
       return F::affine_grid(in.real(1, 2, 3), {1, 2, 3, 3}, false);
     }},
    {"ReflectionPad2d",
     [](Inputs& in) { return in.layer(nn::ReflectionPad2d(2))(in.real(1, 2, 4, 4)); }},
    {"ReplicationPad1d",
     [](Inputs& in) { return in.layer(nn::ReplicationPad1d(2))(in.real(1, 2, 4)); }},
    {"ReplicationPad3d",
     [](Inputs& in) { return in.layer(nn::ReplicationPad3d(1))(in.real(1, 2, 3, 3, 3)); }},
    {"ZeroPad2d", [](Inputs& in) { return in.layer(nn::ZeroPad2d(2))(in.real(1, 2, 4, 4)); }},
};
LOCKSTEP_OPERATOR_TABLE(PoolingTest, kPooling);

const OperatorCase kNorms[] = {
    {"BatchNorm1d", [](Inputs& in) { return in.layer(nn::BatchNorm1d(3))(in.real(4, 3)); }},
    {"BatchNorm2d", [](Inputs& in) { return in.layer(nn::BatchNorm2d(3))(in.real(4, 3, 5, 5)); }},
    {"BatchNorm3d",
     [](Inputs& in) { return in.layer(nn::BatchNorm3d(3))(in.real(2, 3, 3, 3, 3)); }},
    {"BatchNormEval",
     [](Inputs& in) {
       auto norm = in.layer(nn::BatchNorm2d(3));
       norm->eval();
       return norm(in.real(4, 3, 5, 5));
     }},
    {"BatchNormTwice",
     [](Inputs& in) {
       auto norm = in.layer(nn::BatchNorm2d(3));
       return norm(in.real(4, 3, 5, 5)) + norm(in.real(4, 3, 5, 5));
     }},
    {"LayerNorm",
     [](Inputs& in) { return in.layer(nn::LayerNorm(nn::LayerNormOptions({6})))(in.real(4, 6)); },
     "the CPU fuses it; a device composes it"},
    {"GroupNorm", [](Inputs& in) { return in.layer(nn::GroupNorm(2, 4))(in.real(3, 4, 5)); },
     "the CPU fuses it; a device composes it"},
    {"InstanceNorm1d",
     [](Inputs& in) {
       return in.layer(nn::InstanceNorm1d(nn::InstanceNorm1dOptions(3).affine(true)))(
           in.real(4, 3, 5));
     }},
    {"InstanceNorm2d",
     [](Inputs& in) {
       return in.layer(nn::InstanceNorm2d(nn::InstanceNorm2dOptions(3).track_running_stats(true)))(
           in.real(4, 3, 5, 5));
     }},
    {"InstanceNorm3d",
     [](Inputs& in) { return in.layer(nn::InstanceNorm3d(3))(in.real(2, 3, 3, 3, 3)); }},
    {"LocalResponseNorm",
     [](Inputs& in) { return in.layer(nn::LocalResponseNorm(2))(in.real(2, 4, 5)); }},
    {"CrossMapLRN2d",
     [](Inputs& in) { return in.layer(nn::CrossMapLRN2d(3))(in.real(2, 4, 5, 5)); }},
    {"rms_norm", [](Inputs& in) { return at::rms_norm(in.real(4, 6), {6}, in.real(6)); },
     "the CPU fuses it; a device composes it"},
    {"normalize", [](Inputs& in) { return F::normalize(in.real(4, 6)); }},
    {"weight_norm", [](Inputs& in) { return at::_weight_norm(in.real(4, 6), in.real(4, 1), 0); }},
};
LOCKSTEP_OPERATOR_TABLE(NormTest, kNorms);

const OperatorCase kEmbeddings[] = {
    {"Embedding", [](Inputs& in) { return in.layer(nn::Embedding(10, 4))(in.integers(10, 3, 5)); }},
    {"EmbeddingPadding",
     [](Inputs& in) {
       return in.layer(nn::Embedding(nn::EmbeddingOptions(10, 4).padding_idx(2)))(
           in.integers(10, 3, 5));
     }},
    {"EmbeddingMaxNorm",
     [](Inputs& in) {
       return in.layer(nn::Embedding(nn::EmbeddingOptions(10, 4).max_norm(1)))(
           in.integers(10, 3, 5));
     }},
    {"EmbeddingByFrequency",
     [](Inputs& in) {
       return in.layer(nn::Embedding(nn::EmbeddingOptions(10, 4).scale_grad_by_freq(true)))(
           in.integers(10, 3, 5));
     }},
    {"EmbeddingSparse",
     [](Inputs& in) {
       return in.layer(nn::Embedding(nn::EmbeddingOptions(10, 4).sparse(true)))(
           in.integers(10, 3, 5));
     }},
    {"EmbeddingBagMean",
     [](Inputs& in) { return in.layer(nn::EmbeddingBag(10, 4))(in.integers(10, 3, 5)); }},
    {"EmbeddingBagSum",
     [](Inputs& in) {
       return in.layer(nn::EmbeddingBag(nn::EmbeddingBagOptions(10, 4).mode(torch::kSum)))(
           in.integers(10, 3, 5));
     }},
    {"EmbeddingBagMax",
     [](Inputs& in) {
       return in.layer(nn::EmbeddingBag(nn::EmbeddingBagOptions(10, 4).mode(torch::kMax)))(
           in.integers(10, 3, 5));
     }},
    {"EmbeddingBagSparse",
     [](Inputs& in) {
       return in.layer(nn::EmbeddingBag(
           nn::EmbeddingBagOptions(10, 4).mode(torch::kSum).sparse(true)))(in.integers(10, 3, 5));
     }},
    {"EmbeddingBagOffsets",
     [](Inputs& in) {
       const at::Tensor offsets = at::arange(3, at::TensorOptions(in.device())) * 2;
       return in.layer(nn::EmbeddingBag(nn::EmbeddingBagOptions(10, 4).mode(torch::kSum)))(
           in.integers(10, 7), offsets, in.real(7));
     }},
};
LOCKSTEP_OPERATOR_TABLE(EmbeddingTest, kEmbeddings);

}  // namespace
}  // namespace lockstep::simdev
