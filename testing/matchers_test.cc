// SPDX-License-Identifier: Apache-2.0
#include "testing/matchers.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

namespace lockstep::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

template <class Matcher, class Value>
std::string explain(const Matcher& matcher, const Value& value) {
  ::testing::StringMatchResultListener listener;
  EXPECT_FALSE(::testing::ExplainMatchResult(matcher, value, &listener));
  return listener.str();
}

TEST(AllCloseTest, MatchesWithinTheToleranceAndNotBeyond) {
  const at::Tensor one = at::ones({2}, at::kDouble);
  EXPECT_THAT(one, AllClose(one.clone()));
  EXPECT_THAT(one + 0.09, AllClose(one, {/*rtol=*/0, /*atol=*/0.1}));
  EXPECT_THAT(one + 0.11, Not(AllClose(one, {/*rtol=*/0, /*atol=*/0.1})));
  EXPECT_THAT(one * 100 + 9, AllClose(one * 100, {/*rtol=*/0.1, /*atol=*/0}));
  EXPECT_THAT(one * 100 + 11, Not(AllClose(one * 100, {/*rtol=*/0.1, /*atol=*/0})));
}

TEST(AllCloseTest, NamesPlaceValuesAndDistanceOfFirstAndWorstElement) {
  const at::Tensor expected = at::zeros({2, 3}, at::kDouble);
  at::Tensor got = expected.clone();
  got[0][2] = 0.5;
  got[1][1] = -4;
  const std::string text = explain(AllClose(expected, {/*rtol=*/0, /*atol=*/0.25}), got);
  EXPECT_EQ(text,
            "which differs in 2 of 6 elements; first at index [0, 2]: expected 0, got 0.5, off by "
            "0.5 (allowed 0.25); worst at index [1, 1]: expected 0, got -4, off by 4 (allowed "
            "0.25)");
}

TEST(AllCloseTest, IndexIsRowMajorForAnyStrides) {
  at::Tensor got = at::zeros({3, 2}).t();
  got[0][2] = 1;
  EXPECT_THAT(explain(AllClose(at::zeros({2, 3})), got), HasSubstr("at index [0, 2]"));
}

TEST(AllCloseTest, NamesWhatKindDiffers) {
  const at::Tensor got = at::zeros({2});
  EXPECT_EQ(explain(AllClose(at::zeros({3})), got), "whose sizes are [2], expected [3]");
  EXPECT_EQ(explain(AllClose(at::zeros({2}, at::kDouble)), got),
            "whose dtype is Float, expected Double");
  EXPECT_EQ(explain(AllClose(at::zeros({2}).to_sparse()), got),
            "whose layout is Strided, expected Sparse");
  EXPECT_EQ(explain(AllClose(at::Tensor()), got), "which is defined, expected an undefined tensor");
  EXPECT_EQ(explain(AllClose(got), at::Tensor()), "which is undefined, expected a defined tensor");
  EXPECT_THAT(at::Tensor(), AllClose(at::Tensor()));
}

TEST(AllCloseTest, NanAndInfinityMatchOnlyThemselves) {
  const double inf = std::numeric_limits<double>::infinity();
  const at::Tensor nan = at::full({1}, std::nan(""), at::kDouble);
  const at::Tensor infinite = at::full({1}, inf, at::kDouble);
  const at::Tensor zero = at::zeros({1}, at::kDouble);
  EXPECT_THAT(nan, AllClose(nan.clone()));
  EXPECT_THAT(infinite, AllClose(infinite.clone()));
  EXPECT_THAT(nan, Not(AllClose(zero)));
  EXPECT_THAT(zero, Not(AllClose(nan)));
  EXPECT_THAT(infinite, Not(AllClose(zero)));
  EXPECT_THAT(zero, Not(AllClose(infinite)));
  EXPECT_THAT(infinite, Not(AllClose(-infinite)));
}

TEST(AllCloseTest, ReadsComplexIntegerBoolScalarEmptyAndSparse) {
  const at::Tensor z = at::complex(at::ones({2}, at::kDouble), -at::ones({2}, at::kDouble));
  EXPECT_THAT(z, AllClose(z.clone()));
  EXPECT_THAT(z.conj(), Not(AllClose(z)));
  EXPECT_THAT(explain(AllClose(z), z.conj()), HasSubstr("expected 1-1i, got 1+1i, off by 2"));
  EXPECT_THAT(at::arange(3), AllClose(at::arange(3)));
  EXPECT_THAT(at::arange(3) + 1, Not(AllClose(at::arange(3))));
  EXPECT_THAT(at::ones({2}, at::kBool), Not(AllClose(at::zeros({2}, at::kBool))));
  EXPECT_THAT(explain(AllClose(at::ones({})), at::zeros({})), HasSubstr("at index []"));
  EXPECT_THAT(at::ones({0, 3}), AllClose(at::ones({0, 3})));
  EXPECT_THAT(at::eye(3).to_sparse(), AllClose(at::eye(3).to_sparse()));
  EXPECT_THAT(at::eye(3).to_sparse(), Not(AllClose((at::eye(3) * 2).to_sparse())));
}

TEST(AllCloseTest, DescribesItsToleranceAndWorksInContainers) {
  const ::testing::Matcher<const at::Tensor&> matcher = AllClose(at::zeros({1}), {0.5, 0.25});
  std::ostringstream description;
  matcher.DescribeTo(&description);
  EXPECT_THAT(description.str(), HasSubstr("within rtol 0.5 and atol 0.25"));
  const std::vector<at::Tensor> pair = {at::zeros({1}), at::ones({1})};
  EXPECT_THAT(pair, ElementsAre(AllClose(at::zeros({1})), AllClose(at::ones({1}))));
}

TEST(BitwiseEqualTest, TellsApartWhatAllCloseDoesNot) {
  const at::Tensor zero = at::zeros({2}, at::kDouble);
  EXPECT_THAT(-zero, AllClose(zero));
  EXPECT_THAT(-zero, Not(BitwiseEqual(zero)));
  EXPECT_THAT(zero + 1e-300, AllClose(zero));
  EXPECT_THAT(zero + 1e-300, Not(BitwiseEqual(zero)));
  const at::Tensor nan = at::full({1}, std::nan(""));
  EXPECT_THAT(nan, BitwiseEqual(nan.clone()));
}

TEST(BitwiseEqualTest, NamesPlaceAndValues) {
  const at::Tensor expected = at::arange(6).view({2, 3});
  at::Tensor got = expected.clone();
  got[1][0] = 7;
  EXPECT_EQ(explain(BitwiseEqual(expected), got),
            "whose bits differ in 1 of 6 elements; first at index [1, 0]: expected 3, got 7");
  EXPECT_EQ(explain(BitwiseEqual(expected), got.to(at::kInt)), "whose dtype is Int, expected Long");
}

TEST(BitwiseEqualTest, IgnoresStridesAndLazyConjugation) {
  const at::Tensor matrix = at::arange(6).view({2, 3});
  EXPECT_THAT(matrix.t().contiguous().t(), BitwiseEqual(matrix));
  const at::Tensor z = at::complex(at::ones({2}), at::ones({2}));
  EXPECT_THAT(z.conj(), BitwiseEqual(at::complex(at::ones({2}), -at::ones({2}))));
}

TEST(ThrowsErrorTest, MatchesTheMessageOfErrorsAndSubclasses) {
  const auto fails = [] { TORCH_CHECK(false, "[op] expected 3 rows"); };
  const auto fails_index = [] { TORCH_CHECK_INDEX(false, "[op] no row 4"); };
  EXPECT_THAT(fails, ThrowsError("[op] expected 3"));
  EXPECT_THAT(fails, Not(ThrowsError("[op] expected 4")));
  EXPECT_THAT(fails_index, ThrowsError("no row 4"));
  EXPECT_THAT(explain(ThrowsError("other"), fails),
              HasSubstr("which throws c10::Error with message \"[op] expected 3 rows"));
}

TEST(ThrowsErrorTest, ExplainsOtherExceptionsAndNone) {
  EXPECT_EQ(explain(ThrowsError("x"), [] {}), "which throws nothing");
  EXPECT_EQ(explain(ThrowsError("x"), [] { throw std::runtime_error("x"); }),
            "which throws another type, with message \"x\"");
  EXPECT_EQ(explain(ThrowsError("x"), [] { throw 1; }),
            "which throws something that is no std::exception");
  std::ostringstream description;
  ::testing::Matcher<void (*)()>(ThrowsError("rows")).DescribeTo(&description);
  EXPECT_EQ(description.str(), "throws c10::Error with a message that contains \"rows\"");
}

}  // namespace
}  // namespace lockstep::testing
