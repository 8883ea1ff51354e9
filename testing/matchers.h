// SPDX-License-Identifier: Apache-2.0
// GoogleMock matchers for tensors and for LibTorch's errors, with messages that say where.
// Use them with EXPECT_THAT, alone or inside ElementsAre. They read tensors of any device and
// leave them unchanged; the device itself is not compared.
//   EXPECT_THAT(sum, AllClose(expected, {/*rtol=*/0, /*atol=*/1e-12}));
//   EXPECT_THAT([&] { gather({}, cpu); }, ThrowsError("[gather] expected"));
// Inside namespace lockstep write `::testing::Test`: plain `testing` is lockstep::testing there.
#pragma once

#include <ATen/core/Formatting.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>

#include <exception>
#include <ostream>
#include <string>
#include <utility>

namespace lockstep::testing {

// An element matches when |got - expected| <= atol + rtol * |expected|. The defaults are
// those of torch::allclose.
struct Tolerance {
  double rtol = 1e-5;
  double atol = 1e-8;
};

// Matches a tensor whose dtype, layout and sizes are those of `expected` and whose every
// element is within the tolerance. A NaN matches a NaN, an infinity the same infinity. An
// undefined tensor matches an undefined one only. Sparse tensors are compared by their dense form.
// The failure names the first and the worst element that is off, and how many are.
::testing::Matcher<const at::Tensor&> AllClose(at::Tensor expected, Tolerance tolerance = {});

// As AllClose, but every element must have the same bits: 0.0 is not -0.0 and two NaNs match
// only with equal payload. Strides are not compared.
::testing::Matcher<const at::Tensor&> BitwiseEqual(at::Tensor expected);

namespace internal {

class ThrowsErrorMatcher {
 public:
  explicit ThrowsErrorMatcher(std::string substring) : substring_(std::move(substring)) {}

  template <class Callable>
  bool MatchAndExplain(const Callable& callable, ::testing::MatchResultListener* listener) const {
    try {
      callable();
    } catch (const c10::Error& error) {
      return explain_error(error, listener);
    } catch (const std::exception& error) {
      *listener << "which throws another type, with message \"" << error.what() << "\"";
      return false;
    } catch (...) {
      *listener << "which throws something that is no std::exception";
      return false;
    }
    *listener << "which throws nothing";
    return false;
  }

  void DescribeTo(std::ostream* os) const;
  void DescribeNegationTo(std::ostream* os) const;

 private:
  bool explain_error(const c10::Error& error, ::testing::MatchResultListener* listener) const;

  std::string substring_;
};

}  // namespace internal

// Matches a callable without arguments that throws c10::Error, or a subclass, whose message
// (without the backtrace) contains `substring`.
inline ::testing::PolymorphicMatcher<internal::ThrowsErrorMatcher> ThrowsError(
    std::string substring) {
  return ::testing::MakePolymorphicMatcher(internal::ThrowsErrorMatcher(std::move(substring)));
}

}  // namespace lockstep::testing
