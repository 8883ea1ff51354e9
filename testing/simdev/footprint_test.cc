// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/footprint.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

namespace lockstep::simdev::internal {
namespace {

std::set<size_t> bytes_of(const at::Tensor& tensor) {
  std::set<size_t> bytes;
  const at::Tensor flat = at::arange(tensor.storage().nbytes() / tensor.itemsize(), at::kLong)
                              .as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset())
                              .reshape({-1});
  for (int64_t i = 0; i < flat.numel(); ++i) {
    for (size_t byte = 0; byte < tensor.itemsize(); ++byte) {
      bytes.insert(flat[i].item<int64_t>() * tensor.itemsize() + byte);
    }
  }
  return bytes;
}

bool meet(const std::set<size_t>& a, const std::set<size_t>& b) {
  for (size_t byte : a) {
    if (b.count(byte) != 0) {
      return true;
    }
  }
  return false;
}

// A view of the base by random steps.
at::Tensor random_view(at::Tensor view, std::mt19937& random) {
  const auto up_to = [&](int64_t n) { return static_cast<int64_t>(random() % (n + 1)); };
  for (int step = 0; step < 4; ++step) {
    const int64_t dim = up_to(view.dim() - 1);
    const int64_t size = view.size(dim);
    const int64_t begin = up_to(size - 1);
    const int64_t end = begin + 1 + up_to(size - begin - 1);
    switch (random() % 4) {
      case 0:
        view = view.slice(dim, begin, end, 1 + up_to(2));
        break;
      case 1:
        view = view.transpose(dim, up_to(view.dim() - 1));
        break;
      case 2:
        view = view.narrow(dim, begin, end - begin);
        break;
      default:
        view = view.unsqueeze(0).expand({2, -1, -1, -1}).select(0, 1);
    }
  }
  return view;
}

TEST(FootprintTest, KnowsExactlyWhichViewsMeet) {
  std::mt19937 random(7);
  const at::Tensor base = at::zeros({5, 6, 4});
  int met = 0;
  constexpr int kPairs = 400;
  for (int pair = 0; pair < kPairs; ++pair) {
    const at::Tensor a = random_view(base, random);
    const at::Tensor b = random_view(base, random);
    const bool expected = meet(bytes_of(a), bytes_of(b));
    EXPECT_EQ(Footprint(a, 0).meets(Footprint(b, 0)), expected)
        << a.sizes() << a.strides() << a.storage_offset() << " and " << b.sizes() << b.strides()
        << b.storage_offset();
    EXPECT_EQ(Footprint(b, 0).meets(Footprint(a, 0)), expected);
    met += expected ? 1 : 0;
  }
  EXPECT_GT(met, kPairs / 10);
  EXPECT_LT(met, kPairs * 9 / 10);
}

TEST(FootprintTest, TellsColumnsOfAMatrixApart) {
  const at::Tensor matrix = at::zeros({1000, 8});
  const Footprint left(matrix.narrow(1, 0, 3), 0);
  const Footprint right(matrix.narrow(1, 3, 5), 0);
  EXPECT_FALSE(left.meets(right));
  EXPECT_TRUE(left.meets(Footprint(matrix.narrow(1, 2, 2), 0)));
  EXPECT_TRUE(right.meets(Footprint(matrix.select(0, 999), 0)));
}

TEST(FootprintTest, CountsFromTheBlock) {
  const at::Tensor tensor = at::zeros({10});
  const Footprint bytes(tensor.narrow(0, 2, 3), 64);
  EXPECT_EQ(bytes.begin(), 64 + 8);
  EXPECT_EQ(bytes.end(), 64 + 20);
  EXPECT_TRUE(Footprint(64, 128).covers(bytes));
  EXPECT_FALSE(bytes.covers(Footprint(64, 128)));
}

TEST(FootprintTest, OverlappingWindowsAreOneRun) {
  const at::Tensor base = at::zeros({10});
  const Footprint windows(base.unfold(0, 3, 1), 0);
  EXPECT_EQ(windows.begin(), 0);
  EXPECT_EQ(windows.end(), 40);
  EXPECT_TRUE(windows.meets(Footprint(base.narrow(0, 9, 1), 0)));
}

}  // namespace
}  // namespace lockstep::simdev::internal
