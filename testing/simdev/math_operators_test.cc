// SPDX-License-Identifier: Apache-2.0
// Matrix products, linear algebra, Fourier transforms, complex numbers, reads by index, sorting,
// random numbers, sparse matrices.
#include <ATen/ATen.h>

#include "testing/simdev/operator_cases.h"

namespace lockstep::simdev {
namespace {

using at::indexing::None;
using at::indexing::Slice;

constexpr const char* kLapack = "LAPACK's last bit depends on where its work memory lies";
constexpr const char* kOtherOrder = "on a device LibTorch composes it from other operators";

const OperatorCase kProducts[] = {
    {"mm", [](Inputs& in) { return at::mm(in.real(4, 5), in.real(5, 6)); }},
    {"mm_transposed", [](Inputs& in) { return at::mm(in.real(5, 4).t(), in.real(6, 5).t()); }},
    {"addmm", [](Inputs& in) { return at::addmm(in.real(6), in.real(4, 5), in.real(5, 6), 0.5); }},
    {"bmm", [](Inputs& in) { return at::bmm(in.real(3, 4, 5), in.real(3, 5, 6)); }},
    {"baddbmm",
     [](Inputs& in) { return at::baddbmm(in.real(3, 4, 6), in.real(3, 4, 5), in.real(3, 5, 6)); }},
    {"mv_dot", [](Inputs& in) { return at::mv(in.real(4, 5), in.real(5)).dot(in.real(4)); }},
    {"outer_addr", [](Inputs& in) { return at::addr(in.real(4, 5), in.real(4), in.real(5)); }},
    {"matmul_broadcast",
     [](Inputs& in) { return at::matmul(in.real(2, 1, 4, 5), in.real(3, 5, 2)); }},
    {"linear_3d",
     [](Inputs& in) { return at::linear(in.real(2, 3, 5), in.real(4, 5), in.real(4)); }},
    {"einsum",
     [](Inputs& in) {
       return at::einsum("bij,bjk->ik", {in.real(3, 4, 5), in.real(3, 5, 2)});
     }},
    {"tensordot", [](Inputs& in) { return at::tensordot(in.real(3, 4), in.real(4, 5), {1}, {0}); }},
    {"kron", [](Inputs& in) { return at::kron(in.real(2, 3), in.real(3, 2)); }},
    {"cross", [](Inputs& in) { return at::linalg_cross(in.real(4, 3), in.real(4, 3)); }},
    {"cdist", [](Inputs& in) { return at::cdist(in.real(4, 3), in.real(5, 3)); }},
    {"double_mm",
     [](Inputs& in) {
       return at::mm(in.real_of(at::kDouble, 4, 5), in.real_of(at::kDouble, 5, 6));
     }},
    {"bfloat16_mm",
     [](Inputs& in) {
       return at::mm(in.real_of(at::kBFloat16, 4, 5), in.real_of(at::kBFloat16, 5, 6));
     }},
};
LOCKSTEP_OPERATOR_TABLE(ProductTest, kProducts);

at::Tensor positive_definite(Inputs& in) {
  const at::Tensor a = in.real_of(at::kDouble, 4, 4);
  return a.mm(a.t()) + at::eye(4, a.options());
}

const OperatorCase kLinearAlgebra[] = {
    {"inv", [](Inputs& in) { return at::linalg_inv(positive_definite(in)); }, kLapack},
    {"solve",
     [](Inputs& in) {
       return at::linalg_solve(positive_definite(in), in.real_of(at::kDouble, 4, 2));
     },
     kLapack},
    {"cholesky", [](Inputs& in) { return at::linalg_cholesky(positive_definite(in)); }, kLapack},
    {"det_slogdet",
     [](Inputs& in) {
       return at::linalg_det(positive_definite(in)) +
              std::get<1>(at::linalg_slogdet(positive_definite(in)));
     },
     kLapack},
    {"qr", [](Inputs& in) { return at::linalg_qr(in.real_of(at::kDouble, 5, 4)); }, kLapack},
    {"svdvals", [](Inputs& in) { return at::linalg_svdvals(in.real_of(at::kDouble, 5, 4)); },
     kLapack},
    {"svd",
     [](Inputs& in) { return std::get<1>(at::linalg_svd(in.real_of(at::kDouble, 5, 4), false)); },
     kLapack},
    {"eigh", [](Inputs& in) { return std::get<0>(at::linalg_eigh(positive_definite(in))); },
     kLapack},
    {"eigvals", [](Inputs& in) { return at::linalg_eigvals(in.plain(4, 4)).abs(); }, kLapack},
    {"lstsq",
     [](Inputs& in) { return std::get<0>(at::linalg_lstsq(in.plain(5, 3), in.plain(5, 2))); },
     kLapack},
    {"triangular_solve",
     [](Inputs& in) {
       return at::linalg_solve_triangular(positive_definite(in), in.real_of(at::kDouble, 4, 2),
                                          true);
     },
     kLapack},
    {"matrix_exp", [](Inputs& in) { return at::linalg_matrix_exp(in.real_of(at::kDouble, 3, 3)); }},
    {"matrix_power", [](Inputs& in) { return at::linalg_matrix_power(in.real(3, 3), 5); }},
    {"pinv", [](Inputs& in) { return at::linalg_pinv(in.real_of(at::kDouble, 4, 3)); }, kLapack},
    {"trace", [](Inputs& in) { return in.real(4, 4).trace(); }},
};
LOCKSTEP_OPERATOR_TABLE(LinearAlgebraTest, kLinearAlgebra);

const OperatorCase kComplex[] = {
    {"complex_mul", [](Inputs& in) { return in.complex(9) * in.complex(9); }},
    {"conj_is_lazy", [](Inputs& in) { return in.complex(9).conj(); }},
    {"conj_times", [](Inputs& in) { return in.complex(9).conj() * in.complex(9); }},
    {"conj_copy",
     [](Inputs& in) { return at::empty_like(in.complex(9)).copy_(in.complex(9).conj()); }},
    {"imag_of_conj", [](Inputs& in) { return at::imag(in.complex(9).conj()) * 2; }},
    {"complex_matmul", [](Inputs& in) { return in.complex(3, 4).mm(in.complex(3, 4).mH()); }},
    {"abs_angle", [](Inputs& in) { return in.complex(9).abs() + in.complex(9).angle(); }},
    {"real_and_imag", [](Inputs& in) { return at::real(in.complex(9)) * at::imag(in.complex(9)); }},
    {"view_as_real", [](Inputs& in) { return at::view_as_real(in.complex(9)); }},
    {"view_as_complex", [](Inputs& in) { return at::view_as_complex(in.real(9, 2)).exp(); }},
    {"polar", [](Inputs& in) { return at::polar(in.unit(9), in.real(9)); }},
    {"fft", [](Inputs& in) { return at::fft_fft(in.complex(3, 8)); }},
    {"rfft_irfft", [](Inputs& in) { return at::fft_irfft(at::fft_rfft(in.real(3, 8)) * 2); }},
    {"fft2", [](Inputs& in) { return at::fft_ifft2(at::fft_fft2(in.complex(4, 8))); }},
    {"fftshift", [](Inputs& in) { return at::fft_fftshift(in.real(8)); }},
    {"stft",
     [](Inputs& in) {
       return at::view_as_real(at::stft(
           in.real(64), 16, 8, 16, at::hann_window(16, in.plain(1).options()), false, true, true));
     }},
};
LOCKSTEP_OPERATOR_TABLE(ComplexTest, kComplex);

const OperatorCase kSelections[] = {
    {"index", [](Inputs& in) { return in.real(5, 3).index({in.integers(5, 4)}); }},
    {"index_slice_none",
     [](Inputs& in) {
       return in.real(5, 3).index({Slice(1, 4), None, in.integers(3, 2)});
     }},
    {"index_by_mask", [](Inputs& in) { return in.real(9).index({in.coins(9)}); }},
    {"index_of_the_host", [](Inputs& in) { return in.real(5, 3).index({at::arange(3)}); }},
    {"index_put_of_the_host",
     [](Inputs& in) { return in.plain(5, 3).index_put_({at::arange(2)}, in.plain(2, 3)); }},
    {"index_select", [](Inputs& in) { return in.real(5, 3).index_select(1, in.integers(3, 4)); }},
    {"gather", [](Inputs& in) { return in.real(5, 3).gather(0, in.integers(5, 2, 3)); }},
    {"take_along_dim",
     [](Inputs& in) { return at::take_along_dim(in.real(5, 3), in.integers(5, 2, 3), 0); }},
    {"take", [](Inputs& in) { return in.real(5, 3).take(in.integers(15, 4)); }},
    {"masked_select", [](Inputs& in) { return in.real(9).masked_select(in.coins(9)); }},
    {"nonzero", [](Inputs& in) { return at::nonzero(in.coins(4, 5)); }},
    {"argwhere", [](Inputs& in) { return at::argwhere(in.coins(4, 5)); }},
    {"repeat_interleave",
     [](Inputs& in) { return in.real(4).repeat_interleave(in.integers(3, 4)); }},
    {"sort", [](Inputs& in) { return at::sort(in.real(4, 5), 1, true); }},
    {"argsort", [](Inputs& in) { return at::argsort(in.plain(4, 5), int64_t{1}); }},
    {"topk", [](Inputs& in) { return at::topk(in.real(4, 5), 2); }},
    {"kthvalue", [](Inputs& in) { return at::kthvalue(in.real(4, 5), 2); }},
    {"unique", [](Inputs& in) { return at::_unique2(in.integers(5, 20), true, true, true); }},
    {"unique_dim", [](Inputs& in) { return at::unique_dim(in.integers(2, 9, 2), 0, true, true); }},
    {"unique_consecutive",
     [](Inputs& in) { return at::unique_consecutive(in.integers(2, 9), true, true); }},
    {"searchsorted",
     [](Inputs& in) {
       return at::searchsorted(at::arange(5, in.plain(1).options()), in.plain(9));
     }},
    {"bucketize",
     [](Inputs& in) { return at::bucketize(in.plain(9), at::arange(5, in.plain(1).options())); }},
    {"one_hot", [](Inputs& in) { return at::one_hot(in.integers(4, 9), 4); }},
    {"isin", [](Inputs& in) { return at::isin(in.integers(6, 9), in.integers(6, 3)); }},
    {"item",
     [](Inputs& in) { return Outputs::on_host({at::scalar_tensor(in.plain(9).sum().item())}); }},
    {"equal",
     [](Inputs& in) {
       return Outputs::on_host({at::scalar_tensor(int{in.plain(3).equal(in.plain(3))})});
     }},
};
LOCKSTEP_OPERATOR_TABLE(SelectionTest, kSelections);

const OperatorCase kRandom[] = {
    {"randn", [](Inputs& in) { return at::randn({50}, at::TensorOptions(in.device())); }},
    {"rand_randint",
     [](Inputs& in) {
       return at::rand({50}, at::TensorOptions(in.device())) +
              at::randint(9, {50}, at::TensorOptions(in.device()));
     }},
    {"randperm", [](Inputs& in) { return at::randperm(20, at::TensorOptions(in.device())); }},
    {"normal_uniform",
     [](Inputs& in) { return in.plain(50).normal_(1, 2) + in.plain(50).uniform_(-1, 1); }},
    {"bernoulli", [](Inputs& in) { return at::bernoulli(in.unit(50).detach()); }},
    {"multinomial", [](Inputs& in) { return at::multinomial(in.unit(50).detach(), 7); }},
    {"exponential_cauchy",
     [](Inputs& in) { return in.plain(50).exponential_() + in.plain(50).cauchy_(); }},
    {"poisson", [](Inputs& in) { return at::poisson(in.unit(50).detach()); }},
    {"dropout", [](Inputs& in) { return at::dropout(in.real(50), 0.5, true); }},
    {"dropout_a_third", [](Inputs& in) { return at::dropout(in.real(50), 1.0 / 3, true); },
     kOtherOrder},
};
LOCKSTEP_OPERATOR_TABLE(RandomTest, kRandom);

at::Tensor sparse_matrix(Inputs& in) {
  const at::Tensor indices = at::stack({in.integers(4, 6), in.integers(5, 6)});
  return at::sparse_coo_tensor(indices, in.plain(6), {4, 5});
}

const OperatorCase kSparse[] = {
    {"to_dense", [](Inputs& in) { return sparse_matrix(in).to_dense(); }},
    {"coalesce", [](Inputs& in) { return sparse_matrix(in).coalesce(); }},
    {"coalesced_parts",
     [](Inputs& in) {
       const at::Tensor s = sparse_matrix(in).coalesce();
       return std::vector<at::Tensor>{s.indices(), s.values()};
     }},
    {"to_sparse", [](Inputs& in) { return in.plain(4, 5).clamp_min(0).to_sparse(); }},
    {"sparse_clone", [](Inputs& in) { return sparse_matrix(in).clone(); }},
    {"sparse_add", [](Inputs& in) { return sparse_matrix(in) + sparse_matrix(in); }},
    {"sparse_add_in_place", [](Inputs& in) { return sparse_matrix(in).add_(sparse_matrix(in)); }},
    {"sparse_mul_scalar", [](Inputs& in) { return sparse_matrix(in) * 3; }},
    {"dense_add_sparse", [](Inputs& in) { return in.plain(4, 5).add_(sparse_matrix(in), 0.5); }},
    {"sparse_mm", [](Inputs& in) { return at::_sparse_mm(sparse_matrix(in), in.plain(5, 3)); }},
    {"sparse_sum", [](Inputs& in) { return at::_sparse_sum(sparse_matrix(in)); }},
    {"sparse_transpose", [](Inputs& in) { return sparse_matrix(in).t(); }},
    {"sparse_zero", [](Inputs& in) { return sparse_matrix(in).zero_(); }},
    {"sparse_empty",
     [](Inputs& in) {
       return at::sparse_coo_tensor({3, 4}, at::TensorOptions(in.device()));
     }},
    {"sparse_copy",
     [](Inputs& in) {
       at::Tensor target = at::sparse_coo_tensor({4, 5}, at::TensorOptions(in.device()));
       return target.copy_(sparse_matrix(in));
     }},
    {"sparse_to_the_host", [](Inputs& in) { return Outputs::on_host({sparse_matrix(in).cpu()}); }},
    {"sparse_mask",
     [](Inputs& in) { return in.plain(4, 5).sparse_mask(sparse_matrix(in).coalesce()); }},
};
LOCKSTEP_OPERATOR_TABLE(SparseTest, kSparse);

}  // namespace
}  // namespace lockstep::simdev
