// SPDX-License-Identifier: Apache-2.0
#include "testing/matchers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <cstring>
#include <limits>
#include <sstream>
#include <vector>

namespace lockstep::testing {
namespace {

std::string index_to_string(int64_t flat, at::IntArrayRef sizes) {
  std::vector<int64_t> index(sizes.size());
  for (size_t d = sizes.size(); d-- > 0;) {
    index[d] = flat % sizes[d];
    flat /= sizes[d];
  }
  std::ostringstream out;
  out << at::IntArrayRef(index);
  return out.str();
}

std::string element_to_string(const at::Tensor& flat, int64_t i) {
  std::ostringstream out;
  out.precision(std::numeric_limits<double>::max_digits10);
  const at::Tensor element = flat.select(0, i);
  if (at::isComplexType(flat.scalar_type())) {
    const auto value = element.item<c10::complex<double>>();
    out << value.real() << (value.imag() < 0 ? "" : "+") << value.imag() << "i";
  } else if (at::isFloatingType(flat.scalar_type())) {
    out << element.item<double>();
  } else {
    out << element.item<int64_t>();
  }
  return out.str();
}

// A flat, contiguous CPU copy in which element i is the i-th of the tensor, row-major.
at::Tensor flat_on_cpu(const at::Tensor& tensor) {
  at::Tensor dense = tensor.detach();
  if (dense.layout() != at::kStrided) {
    dense = dense.to_dense();
  }
  return dense.cpu().resolve_conj().resolve_neg().contiguous().view({-1});
}

// What must agree before elements can be compared. False after it has explained itself.
bool same_kind(const at::Tensor& got, const at::Tensor& expected,
               ::testing::MatchResultListener* listener) {
  if (got.defined() != expected.defined()) {
    *listener << "which is " << (got.defined() ? "defined" : "undefined") << ", expected "
              << (expected.defined() ? "a defined" : "an undefined") << " tensor";
    return false;
  }
  if (!got.defined()) {
    return true;
  }
  if (got.sizes() != expected.sizes()) {
    *listener << "whose sizes are " << got.sizes() << ", expected " << expected.sizes();
    return false;
  }
  if (got.scalar_type() != expected.scalar_type()) {
    *listener << "whose dtype is " << got.scalar_type() << ", expected " << expected.scalar_type();
    return false;
  }
  if (got.layout() != expected.layout()) {
    *listener << "whose layout is " << got.layout() << ", expected " << expected.layout();
    return false;
  }
  return true;
}

class AllCloseMatcher : public ::testing::MatcherInterface<const at::Tensor&> {
 public:
  AllCloseMatcher(at::Tensor expected, Tolerance tolerance)
      : expected_(std::move(expected)), tolerance_(tolerance) {}

  bool MatchAndExplain(const at::Tensor& got,
                       ::testing::MatchResultListener* listener) const override {
    if (!same_kind(got, expected_, listener)) {
      return false;
    }
    if (!got.defined() || got.numel() == 0) {
      return true;
    }
    const at::Tensor got_flat = flat_on_cpu(got);
    const at::Tensor expected_flat = flat_on_cpu(expected_);
    const bool complex = at::isComplexType(got_flat.scalar_type());
    const at::ScalarType wide = complex ? at::kComplexDouble : at::kDouble;
    const at::Tensor a = got_flat.to(wide);
    const at::Tensor b = expected_flat.to(wide);

    const at::Tensor same =
        got_flat.eq(expected_flat).logical_or(at::isnan(a).logical_and(at::isnan(b)));
    const at::Tensor distance = at::where(same, at::zeros_like(same, at::kDouble), at::abs(a - b));
    const at::Tensor allowed = at::abs(b) * tolerance_.rtol + tolerance_.atol;
    // Written so that a NaN distance, and an infinite allowance of an infinite element, is off.
    const at::Tensor off =
        same.logical_or(distance.le(allowed).logical_and(distance.isfinite())).logical_not();
    const at::Tensor off_at = off.nonzero();
    if (off_at.size(0) == 0) {
      return true;
    }

    const int64_t first = off_at[0][0].item<int64_t>();
    const int64_t worst =
        at::argmax(at::where(off, distance, distance.new_zeros({}))).item<int64_t>();
    *listener << "which differs in " << off_at.size(0) << " of " << got.numel()
              << " elements; first ";
    describe_element(got_flat, expected_flat, distance, allowed, first, listener);
    if (worst != first) {
      *listener << "; worst ";
      describe_element(got_flat, expected_flat, distance, allowed, worst, listener);
    }
    return false;
  }

  void DescribeTo(std::ostream* os) const override {
    *os << "is within rtol " << tolerance_.rtol << " and atol " << tolerance_.atol << " of "
        << expected_;
  }

 private:
  void describe_element(const at::Tensor& got, const at::Tensor& expected,
                        const at::Tensor& distance, const at::Tensor& allowed, int64_t i,
                        ::testing::MatchResultListener* listener) const {
    *listener << "at index " << index_to_string(i, expected_.sizes()) << ": expected "
              << element_to_string(expected, i) << ", got " << element_to_string(got, i)
              << ", off by " << element_to_string(distance, i) << " (allowed "
              << element_to_string(allowed, i) << ")";
  }

  at::Tensor expected_;
  Tolerance tolerance_;
};

class BitwiseEqualMatcher : public ::testing::MatcherInterface<const at::Tensor&> {
 public:
  explicit BitwiseEqualMatcher(at::Tensor expected) : expected_(std::move(expected)) {}

  bool MatchAndExplain(const at::Tensor& got,
                       ::testing::MatchResultListener* listener) const override {
    if (!same_kind(got, expected_, listener)) {
      return false;
    }
    if (!got.defined() || got.numel() == 0) {
      return true;
    }
    const at::Tensor got_flat = flat_on_cpu(got);
    const at::Tensor expected_flat = flat_on_cpu(expected_);
    const size_t bytes = got_flat.element_size();
    const char* a = static_cast<const char*>(got_flat.const_data_ptr());
    const char* b = static_cast<const char*>(expected_flat.const_data_ptr());
    int64_t first = -1;
    int64_t count = 0;
    for (int64_t i = 0; i < got_flat.numel(); ++i) {
      if (std::memcmp(a + i * bytes, b + i * bytes, bytes) != 0) {
        first = count == 0 ? i : first;
        ++count;
      }
    }
    if (count == 0) {
      return true;
    }
    *listener << "whose bits differ in " << count << " of " << got.numel()
              << " elements; first at index " << index_to_string(first, expected_.sizes())
              << ": expected " << element_to_string(expected_flat, first) << ", got "
              << element_to_string(got_flat, first);
    return false;
  }

  void DescribeTo(std::ostream* os) const override { *os << "has the same bits as " << expected_; }

 private:
  at::Tensor expected_;
};

}  // namespace

::testing::Matcher<const at::Tensor&> AllClose(at::Tensor expected, Tolerance tolerance) {
  return ::testing::MakeMatcher(new AllCloseMatcher(std::move(expected), tolerance));
}

::testing::Matcher<const at::Tensor&> BitwiseEqual(at::Tensor expected) {
  return ::testing::MakeMatcher(new BitwiseEqualMatcher(std::move(expected)));
}

namespace internal {

void ThrowsErrorMatcher::DescribeTo(std::ostream* os) const {
  *os << "throws c10::Error with a message that contains \"" << substring_ << "\"";
}

void ThrowsErrorMatcher::DescribeNegationTo(std::ostream* os) const {
  *os << "does not throw c10::Error with a message that contains \"" << substring_ << "\"";
}

bool ThrowsErrorMatcher::explain_error(const c10::Error& error,
                                       ::testing::MatchResultListener* listener) const {
  const std::string message = error.what_without_backtrace();
  *listener << "which throws c10::Error with message \"" << message << "\"";
  return message.find(substring_) != std::string::npos;
}

}  // namespace internal
}  // namespace lockstep::testing
