// SPDX-License-Identifier: Apache-2.0
#include "testing/gradcheck.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string>

#include "testing/matchers.h"
#include "testing/random.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::vector<at::Tensor> square_and_product(const std::vector<at::Tensor>& in) {
  return {in[0] * in[0], in[0] * in[1]};
}

at::Tensor leaf(at::IntArrayRef sizes, uint64_t seed, at::ScalarType dtype = at::kDouble) {
  return random_tensor(sizes, seed, dtype).requires_grad_();
}

TEST(GradcheckTest, AcceptsRightGradientsOfBothOrders) {
  EXPECT_TRUE(gradcheck(square_and_product, {leaf({2, 3}, 1), leaf({2, 3}, 2)}));
  EXPECT_TRUE(gradgradcheck(square_and_product, {leaf({2, 3}, 1), leaf({2, 3}, 2)}));
}

TEST(GradcheckTest, AcceptsInputsWithoutGradAndUnusedInputs) {
  EXPECT_TRUE(gradcheck(square_and_product, {leaf({2}, 1), random_tensor({2}, 2)}));
  EXPECT_TRUE(gradgradcheck(square_and_product, {leaf({2}, 1), random_tensor({2}, 2)}));
  EXPECT_TRUE(gradcheck(square_and_product, {leaf({2}, 1), leaf({2}, 2), leaf({2}, 3)}));
}

TEST(GradcheckTest, AcceptsComplexScalarsAndStridedInputs) {
  const auto holomorphic = [](const std::vector<at::Tensor>& in) {
    return std::vector<at::Tensor>{in[0].exp() * in[0].conj(), in[0].abs()};
  };
  const at::Tensor z = leaf({3}, 1, at::kComplexDouble);
  EXPECT_TRUE(gradcheck(holomorphic, {z}));
  EXPECT_TRUE(gradgradcheck(holomorphic, {z}));
  EXPECT_TRUE(gradcheck(square_and_product, {leaf({}, 1), leaf({}, 2)}));
  const at::Tensor strided = random_tensor({3, 2}, 1).t().requires_grad_();
  EXPECT_TRUE(gradcheck(square_and_product, {strided, leaf({2, 3}, 2)}));
}

TEST(GradcheckTest, LeavesInputsAlone) {
  const at::Tensor x = leaf({2}, 1);
  const at::Tensor before = x.detach().clone();
  EXPECT_TRUE(gradcheck(square_and_product, {x, leaf({2}, 2)}));
  EXPECT_THAT(x.detach(), BitwiseEqual(before));
  EXPECT_FALSE(x.grad().defined());
}

struct WrongOnce : torch::autograd::Function<WrongOnce> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x * 2; }
  static variable_list backward(AutogradContext*, const variable_list& grads) {
    at::Tensor wrong = grads[0] * 2;
    wrong[1] = wrong[1] + 0.5;
    return {wrong};
  }
};

TEST(GradcheckTest, CatchesAWrongBackwardAndSaysWhere) {
  const auto function = [](const std::vector<at::Tensor>& in) {
    return std::vector<at::Tensor>{WrongOnce::apply(in[0])};
  };
  const ::testing::AssertionResult result = gradcheck(function, {leaf({3}, 1)});
  ASSERT_FALSE(result);
  const std::string message = result.message();
  EXPECT_THAT(message, HasSubstr("upstream \"random\": the gradient of input 0"));
  EXPECT_THAT(message, HasSubstr("differs in 1 of 3 elements; first at index [1]"));
  EXPECT_THAT(message, HasSubstr("off by 0."));
}

// Right at first order; the saved input is detached, so second order gradients are lost.
struct WrongTwice : torch::autograd::Function<WrongTwice> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->saved_data["x"] = x.detach();
    return x * x;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    return {grads[0] * 2 * context->saved_data["x"].toTensor()};
  }
};

TEST(GradcheckTest, CatchesAWrongSecondOrderThatFirstOrderHides) {
  const auto function = [](const std::vector<at::Tensor>& in) {
    return std::vector<at::Tensor>{WrongTwice::apply(in[0])};
  };
  EXPECT_TRUE(gradcheck(function, {leaf({2}, 1)}));
  EXPECT_FALSE(gradgradcheck(function, {leaf({2}, 1)}));
}

// Wrong only for the strides or the definedness of what comes from upstream.
struct PickyBackward : torch::autograd::Function<PickyBackward> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, int64_t kind) {
    context->saved_data["kind"] = kind;
    context->set_materialize_grads(false);
    return {x.clone(), x * 1};
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const int64_t kind = context->saved_data["kind"].toInt();
    at::Tensor total;
    for (const at::Tensor& gradient : grads) {
      if (!gradient.defined()) {
        if (kind == 0) return {at::Tensor(), at::Tensor()};
        continue;
      }
      at::Tensor term = gradient;
      const bool expanded = gradient.dim() == 2 && gradient.stride(0) == 0;
      if ((kind == 1 && expanded) || (kind == 2 && !expanded && !gradient.is_contiguous())) {
        term = at::zeros_like(gradient);
      }
      total = total.defined() ? total + term : term;
    }
    return {total, at::Tensor()};
  }
};

TEST(GradcheckTest, CatchesFaultsOfSpecialUpstreams) {
  const char* const kNames[] = {"random for output 0 alone", "expanded",
                                "random with permuted strides"};
  for (int64_t kind = 0; kind < 3; ++kind) {
    const auto function = [kind](const std::vector<at::Tensor>& in) {
      return PickyBackward::apply(in[0], kind);
    };
    const ::testing::AssertionResult result = gradcheck(function, {leaf({2, 3}, 1)});
    ASSERT_FALSE(result) << kNames[kind];
    EXPECT_THAT(std::string(result.message()), HasSubstr(kNames[kind]));
  }
}

TEST(GradcheckTest, CatchesAnOutputThatLostItsHistory) {
  const auto function = [](const std::vector<at::Tensor>& in) {
    return std::vector<at::Tensor>{in[0].detach() * 3};
  };
  EXPECT_FALSE(gradcheck(function, {leaf({2}, 1)}));
}

TEST(GradcheckTest, RefusesInputsItCannotCheck) {
  const auto identity = [](const std::vector<at::Tensor>& in) { return in; };
  const auto single = gradcheck(identity, {leaf({2}, 1, at::kFloat)});
  EXPECT_FALSE(single);
  EXPECT_THAT(std::string(single.message()), HasSubstr("input 0 is Float"));
  const auto none = gradgradcheck(identity, {random_tensor({2}, 1)});
  EXPECT_FALSE(none);
  EXPECT_THAT(std::string(none.message()), HasSubstr("no input requires grad"));
}

}  // namespace
}  // namespace lockstep::testing
