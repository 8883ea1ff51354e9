// SPDX-License-Identifier: Apache-2.0
#include "comm/internal/sum_into.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <c10/util/SmallVector.h>

#include <algorithm>

#include "comm/internal/plain_memory.h"

namespace lockstep::comm::internal {
namespace {

constexpr int64_t kBlock = 2048;      // elements; a block of the output stays in the first cache
constexpr int64_t kGrainBlocks = 16;  // blocks that are worth a thread of their own
constexpr int64_t kLanes = 16;        // a fixed count lets the compiler use vector instructions

// out = a + b for `n` elements; out may be a.
template <class T>
void add_block(const T* a, const T* b, T* out, int64_t n) {
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    T sums[kLanes];
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] = a[j + lane] + b[j + lane];
    }
    std::copy(sums, sums + kLanes, out + j);
  }
  for (; j < n; ++j) {
    out[j] = a[j] + b[j];
  }
}

// One pass over memory: every input is read once, the output written once.
template <class T>
void sum_one_pass(at::TensorList inputs, const at::Tensor& destination) {
  c10::SmallVector<const T*, 8> sources;
  for (const at::Tensor& input : inputs) {
    sources.push_back(input.const_data_ptr<T>());
  }
  T* const out = destination.mutable_data_ptr<T>();
  const int64_t count = destination.numel();
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  at::parallel_for(0, blocks, kGrainBlocks, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      const int64_t start = block * kBlock;
      const int64_t n = std::min(kBlock, count - start);
      add_block(sources[0] + start, sources[1] + start, out + start, n);
      for (size_t i = 2; i < sources.size(); ++i) {
        add_block(out + start, sources[i] + start, out + start, n);
      }
    }
  });
  destination.unsafeGetTensorImpl()->bump_version();
}

// Equal strides without gaps mean that memory can be walked front to back.
bool can_sum_in_one_pass(at::TensorList inputs, const at::Tensor& destination) {
  const c10::ScalarType dtype = destination.scalar_type();
  if (dtype != at::kFloat && dtype != at::kDouble) {
    return false;
  }
  const auto plain = [&](const at::Tensor& tensor) {
    return tensor.is_cpu() && is_plain_memory(tensor) && tensor.strides() == destination.strides();
  };
  return inputs.size() >= 2 && plain(destination) &&
         std::all_of(inputs.begin(), inputs.end(), plain);
}

at::Tensor at_home(const at::Tensor& input, const at::Tensor& destination) {
  return input.device() == destination.device()
             ? input
             : input.to(destination.device(), /*non_blocking=*/!destination.is_cpu());
}

}  // namespace

void sum_into(at::TensorList inputs, const at::Tensor& destination) {
  const at::NoGradGuard no_grad;
  if (can_sum_in_one_pass(inputs, destination)) {
    destination.scalar_type() == at::kFloat ? sum_one_pass<float>(inputs, destination)
                                            : sum_one_pass<double>(inputs, destination);
    return;
  }
  if (inputs.size() == 1) {
    destination.copy_(inputs[0], /*non_blocking=*/!destination.is_cpu());
    return;
  }
  at::Tensor sum = destination;
  at::add_out(sum, at_home(inputs[0], sum), at_home(inputs[1], sum));
  for (const at::Tensor& input : inputs.slice(2)) {
    sum.add_(at_home(input, sum));
  }
}

}  // namespace lockstep::comm::internal
