// SPDX-License-Identifier: Apache-2.0
// Pointwise operators, reductions, views, in-place and out= forms, indexing, sorting.
#include <ATen/ATen.h>

#include "testing/simdev/operator_cases.h"

namespace lockstep::simdev {
namespace {

const OperatorCase kPointwise[] = {
    {"add", [](Inputs& in) { return in.real(4, 3) + in.real(4, 3); }},
    {"add_alpha", [](Inputs& in) { return at::add(in.real(4, 3), in.real(3), 0.5); }},
    {"add_scalar", [](Inputs& in) { return in.real(4, 3) + 2; }},
    {"add_zero_dim_of_the_host", [](Inputs& in) { return in.real(4) + at::scalar_tensor(2.0); }},
    {"sub_broadcast", [](Inputs& in) { return in.real(4, 1) - in.real(1, 3); }},
    {"rsub", [](Inputs& in) { return 1 - in.real(4, 3); }},
    {"mul", [](Inputs& in) { return in.real(4, 3) * in.real(4, 3); }},
    {"div", [](Inputs& in) { return in.real(4, 3) / in.unit(4, 3); }},
    {"div_trunc", [](Inputs& in) { return at::div(in.real(9), in.unit(9), "trunc"); }},
    {"remainder", [](Inputs& in) { return at::remainder(in.real(9), 0.7); }},
    {"fmod", [](Inputs& in) { return at::fmod(in.real(9), in.unit(9)); }},
    {"pow", [](Inputs& in) { return at::pow(in.unit(9), in.real(9)); }},
    {"pow_scalar", [](Inputs& in) { return in.real(9).pow(3); }},
    {"neg_abs_sign", [](Inputs& in) { return (-in.real(9)).abs() + in.real(9).sign(); }},
    {"exp_log", [](Inputs& in) { return in.real(9).exp() + in.unit(9).log(); }},
    {"log1p_expm1", [](Inputs& in) { return in.unit(9).log1p() + in.real(9).expm1(); }},
    {"sqrt_rsqrt", [](Inputs& in) { return in.unit(9).sqrt() + in.unit(9).rsqrt(); }},
    {"sin_cos_tan", [](Inputs& in) { return in.real(9).sin() * in.real(9).cos().tan(); }},
    {"asin_acos_atan", [](Inputs& in) { return in.unit(9).asin() + in.unit(9).acos().atan(); }},
    {"sinh_cosh_tanh", [](Inputs& in) { return in.real(9).sinh().cosh().tanh(); }},
    {"atan2", [](Inputs& in) { return at::atan2(in.real(9), in.unit(9)); }},
    {"erf_erfinv", [](Inputs& in) { return in.real(9).erf() + in.unit(9).erfinv(); }},
    {"lgamma_digamma", [](Inputs& in) { return in.unit(9).lgamma() + in.unit(9).digamma(); }},
    {"floor_ceil_round", [](Inputs& in) { return in.real(9).floor() + in.real(9).round(); }},
    {"clamp", [](Inputs& in) { return in.real(9).clamp(-0.5, 0.5); }},
    {"clamp_tensor", [](Inputs& in) { return at::clamp(in.real(9), in.plain(9)); }},
    {"maximum_minimum",
     [](Inputs& in) { return at::maximum(in.real(9), in.real(9)).minimum(in.real(9)); }},
    {"lerp", [](Inputs& in) { return at::lerp(in.real(9), in.real(9), 0.25); }},
    {"addcmul_addcdiv",
     [](Inputs& in) {
       return at::addcdiv(in.real(9).addcmul(in.real(9), in.real(9)), in.real(9), in.unit(9), 0.5);
     }},
    {"where", [](Inputs& in) { return at::where(in.coins(9), in.real(9), in.real(9)); }},
    {"where_scalar", [](Inputs& in) { return at::where(in.coins(9), in.real(9), 3.0); }},
    {"nan_to_num", [](Inputs& in) { return at::nan_to_num(in.real(9) / in.plain(9).round()); }},
    {"compare",
     [](Inputs& in) {
       return at::stack({in.plain(9) < 0, in.plain(9).ge(0.1)});
     }},
    {"logical", [](Inputs& in) { return in.coins(9).logical_xor(in.coins(9)).logical_not(); }},
    {"bitwise", [](Inputs& in) { return (in.integers(8, 9) & 5).bitwise_left_shift(2); }},
    {"integers", [](Inputs& in) { return at::floor_divide(in.integers(8, 9) * 7, 3); }},
    {"half", [](Inputs& in) { return (in.real_of(at::kHalf, 9) * 2).sigmoid(); }},
    {"bfloat16", [](Inputs& in) { return (in.real_of(at::kBFloat16, 9) * 2).tanh(); }},
    {"double", [](Inputs& in) { return (in.real_of(at::kDouble, 9) * 2).tanh(); }},
    {"promotion", [](Inputs& in) { return in.integers(5, 9) + in.real_of(at::kDouble, 9); }},
    {"to_dtype", [](Inputs& in) { return in.real(9).to(at::kDouble) + in.plain(9).to(at::kInt); }},
    {"isfinite", [](Inputs& in) { return at::isfinite(in.plain(9) / in.plain(9).round()); }},
    {"zero_tensor",
     [](Inputs& in) { return at::_efficientzerotensor({9}, in.plain(9).options()) + in.real(9); }},
};
LOCKSTEP_OPERATOR_TABLE(PointwiseTest, kPointwise);

const OperatorCase kReductions[] = {
    {"sum", [](Inputs& in) { return in.real(4, 5).sum(); }},
    {"sum_dim",
     [](Inputs& in) {
       return in.real(4, 5, 6).sum(at::IntArrayRef{0, 2}, true);
     }},
    {"mean", [](Inputs& in) { return in.real(4, 5).mean(1); }},
    {"prod", [](Inputs& in) { return in.real(4, 5).prod(1); }},
    {"std_var", [](Inputs& in) { return in.real(4, 5).std(1) + in.real(4, 5).var(1); }},
    {"var_mean", [](Inputs& in) { return at::var_mean(in.real(4, 5), 1); }},
    {"max", [](Inputs& in) { return in.real(4, 5).max(); }},
    {"max_dim", [](Inputs& in) { return at::max(in.real(4, 5), 1); }},
    {"amin_amax", [](Inputs& in) { return in.real(4, 5).amin(1) + in.real(4, 5).amax(1); }},
    {"aminmax", [](Inputs& in) { return at::_aminmax(in.plain(4, 5), 1); }},
    {"argmax_argmin",
     [](Inputs& in) { return in.plain(4, 5).argmax(1) + in.plain(4, 5).argmin(1); }},
    {"median", [](Inputs& in) { return at::median(in.real(4, 5), 1); }},
    {"mode", [](Inputs& in) { return at::mode(in.real(4, 5), 1); }},
    {"norm",
     [](Inputs& in) { return in.real(4, 5).norm() + at::linalg_vector_norm(in.real(4), 3); }},
    {"logsumexp", [](Inputs& in) { return at::logsumexp(in.real(4, 5), 1); }},
    {"softmax", [](Inputs& in) { return at::softmax(in.real(4, 5), 1); }},
    {"log_softmax", [](Inputs& in) { return at::log_softmax(in.real(4, 5), 0); }},
    {"cumsum_cumprod",
     [](Inputs& in) { return in.real(4, 5).cumsum(1) + in.real(4, 5).cumprod(0); }},
    {"cummax", [](Inputs& in) { return at::cummax(in.real(4, 5), 1); }},
    {"all_any",
     [](Inputs& in) {
       return at::stack({in.coins(9).all(), in.coins(9).any()});
     }},
    {"count_nonzero", [](Inputs& in) { return at::count_nonzero(in.integers(3, 9)); }},
    {"bincount", [](Inputs& in) { return at::bincount(in.integers(5, 20)); }},
    {"histc", [](Inputs& in) { return at::histc(in.plain(50), 7, -2, 2); }},
    {"sum_of_nothing", [](Inputs& in) { return in.real(0, 3).sum(0); }},
    {"quantile", [](Inputs& in) { return at::quantile(in.real(4, 5), 0.3, 1); }},
};
LOCKSTEP_OPERATOR_TABLE(ReductionTest, kReductions);

const OperatorCase kViews[] = {
    {"view_reshape",
     [](Inputs& in) {
       return in.real(4, 6).view({8, 3}).reshape({3, 8});
     }},
    {"transpose_contiguous", [](Inputs& in) { return in.real(4, 6).t().contiguous(); }},
    {"permute_reshape",
     [](Inputs& in) {
       return in.real(2, 3, 4).permute({2, 0, 1}).reshape({4, 6});
     }},
    {"select_narrow_slice",
     [](Inputs& in) { return in.real(4, 6).select(0, 2).narrow(0, 1, 4).slice(0, 0, 4, 2); }},
    {"diagonal", [](Inputs& in) { return in.real(5, 5).diagonal(1) * in.real(5, 5).diagonal(-1); }},
    {"expand",
     [](Inputs& in) {
       return in.real(4, 1).expand({4, 6}) * in.real(4, 6);
     }},
    {"as_strided",
     [](Inputs& in) {
       return in.real(12).as_strided({3, 4}, {2, 1}, 1);
     }},
    {"unfold", [](Inputs& in) { return in.real(9).unfold(0, 4, 2); }},
    {"squeeze_unsqueeze", [](Inputs& in) { return in.real(4, 1, 3).squeeze(1).unsqueeze(0); }},
    {"split_cat", [](Inputs& in) { return at::cat(in.real(7, 3).split(3)); }},
    {"chunk_stack", [](Inputs& in) { return at::stack(in.real(6, 3).chunk(3), 1); }},
    {"unbind", [](Inputs& in) { return in.real(3, 4).unbind(0); }},
    {"repeat_tile",
     [](Inputs& in) {
       return in.real(2, 3).repeat({2, 2}) + in.real(2, 3).tile({2, 2});
     }},
    {"flip_roll_rot90", [](Inputs& in) { return at::rot90(in.real(3, 4).flip({0}).roll(1, 1)); }},
    {"tril_triu", [](Inputs& in) { return in.real(4, 4).tril() + in.real(4, 4).triu(1); }},
    {"pad_constant",
     [](Inputs& in) {
       return at::constant_pad_nd(in.real(3, 4), {1, 2}, 0.5);
     }},
    {"movedim_flatten", [](Inputs& in) { return in.real(2, 3, 4).movedim(0, 2).flatten(); }},
    {"channels_last",
     [](Inputs& in) { return in.real(2, 3, 4, 4).contiguous(at::MemoryFormat::ChannelsLast) * 2; }},
    {"write_through_views",
     [](Inputs& in) {
       at::Tensor t = in.plain(4, 4);
       t.select(0, 1).add_(3);
       t.t().narrow(0, 0, 1).mul_(2);
       t.view({2, 8}).slice(1, 0, 8, 2).add_(1);
       t.diagonal().fill_(7);
       return t;
     }},
    {"view_dtype", [](Inputs& in) { return in.plain(4).view(at::kInt); }},
    {"factories",
     [](Inputs& in) {
       const at::TensorOptions options(in.device());
       return at::arange(6, options) + at::full({6}, 2, options) + at::eye(6, options).sum(0) +
              at::linspace(0, 1, 6, options) + at::ones({6}, options) + at::zeros({6}, options);
     }},
    {"tril_indices",
     [](Inputs& in) {
       return at::tril_indices(4, 4, 0, at::TensorOptions(in.device()).dtype(at::kLong));
     }},
    {"meshgrid",
     [](Inputs& in) {
       return at::meshgrid({in.real(3), in.real(4)}, "ij");
     }},
};
LOCKSTEP_OPERATOR_TABLE(ViewTest, kViews);

const OperatorCase kWrites[] = {
    {"in_place_chain", [](Inputs& in) { return (in.real(9) * 1).add_(1).mul_(3).clamp_(0, 5); }},
    {"in_place_with_itself",
     [](Inputs& in) {
       at::Tensor t = in.plain(9);
       return t.add_(t).mul_(t);
     }},
    {"relu_in_place", [](Inputs& in) { return (in.real(9) * 1).relu_(); }},
    {"fill_zero_copy",
     [](Inputs& in) { return in.plain(9).fill_(3).copy_(in.real(9)) + in.plain(9).zero_(); }},
    {"copy_broadcast_and_cast",
     [](Inputs& in) { return in.plain_of(at::kDouble, 3, 4).copy_(in.real(4)); }},
    {"out_that_grows",
     [](Inputs& in) {
       at::Tensor out = at::empty({0}, in.plain(1).options());
       return at::add_out(out, in.plain(9), in.plain(9));
     }},
    {"out_that_fits",
     [](Inputs& in) {
       at::Tensor out = in.plain(9);
       at::mul_out(out, in.plain(9), in.plain(9));
       out.resize_({2, 2});
       return at::mm_out(out, in.plain(2, 3), in.plain(3, 2));
     }},
    {"out_into_a_view",
     [](Inputs& in) {
       at::Tensor base = in.plain(4, 4);
       at::Tensor out = base.select(1, 2);
       at::sum_out(out, in.plain(4, 5), 1);
       return base;
     }},
    {"resize_grows_and_keeps",
     [](Inputs& in) {
       at::Tensor t = in.plain(6);
       t.resize_({10}).slice(0, 6, 10).zero_();
       return t;
     }},
    {"resize_shrinks",
     [](Inputs& in) {
       return in.plain(6).resize_({2, 2});
     }},
    {"resize_channels_last",
     [](Inputs& in) {
       return at::empty({0}, in.plain(1).options())
           .resize_({2, 3, 4, 4}, at::MemoryFormat::ChannelsLast)
           .fill_(2);
     }},
    {"set_tensor",
     [](Inputs& in) {
       at::Tensor t = in.plain(1);
       const at::Tensor source = in.plain(2, 3);
       t.set_(source).mul_(2);
       return source;
     }},
    {"set_storage_part",
     [](Inputs& in) {
       at::Tensor t = in.plain(1);
       return t.set_(in.plain(9).storage(), 2, {2, 2}, {2, 1});
     }},
    {"set_whole_storage", [](Inputs& in) { return in.plain(1).set_(in.plain(9).storage()); }},
    {"set_grows_the_storage",
     [](Inputs& in) {
       at::Tensor t = in.plain(1);
       t.set_(in.plain(4).storage(), 0, {6}, {1}).slice(0, 4, 6).zero_();
       return t;
     }},
    {"set_nothing", [](Inputs& in) { return in.plain(3).set_(); }},
    {"index_put",
     [](Inputs& in) { return in.real(5, 3).index_put({in.integers(5, 4)}, in.real(4, 3)); }},
    {"index_put_accumulate",
     [](Inputs& in) { return in.real(5, 3).index_put({in.integers(5, 9)}, in.real(9, 3), true); }},
    {"index_add",
     [](Inputs& in) { return in.real(5, 3).index_add(0, in.integers(5, 4), in.real(4, 3)); }},
    {"index_fill_copy",
     [](Inputs& in) { return in.real(5, 3).index_fill(0, in.integers(5, 2), 2.0); }},
    {"scatter",
     [](Inputs& in) { return in.real(5, 3).scatter(0, in.integers(5, 1, 3), in.real(1, 3)); }},
    {"scatter_add",
     [](Inputs& in) { return in.real(5, 3).scatter_add(0, in.integers(5, 4, 3), in.real(4, 3)); }},
    {"scatter_reduce",
     [](Inputs& in) {
       return in.real(5, 3).scatter_reduce(0, in.integers(5, 4, 3), in.real(4, 3), "amax");
     }},
    {"masked_fill", [](Inputs& in) { return in.real(9).masked_fill(in.coins(9), 2.0); }},
    {"masked_scatter",
     [](Inputs& in) { return in.real(9).masked_scatter(in.coins(9), in.real(9)); }},
};
LOCKSTEP_OPERATOR_TABLE(WriteTest, kWrites);

}  // namespace
}  // namespace lockstep::simdev
