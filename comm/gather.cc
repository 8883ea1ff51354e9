// SPDX-License-Identifier: Apache-2.0
#include "comm/gather.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <optional>
#include <utility>
#include <vector>

#include "comm/device_list.h"
#include "comm/internal/checks.h"

namespace lockstep::comm {
namespace {

// What the checks find out.
struct Joined {
  int64_t dim;                 // counted from the front
  std::vector<int64_t> sizes;  // of the result
};

Joined check_inputs(const char* op, at::TensorList inputs, int64_t dim) {
  TORCH_CHECK(!inputs.empty(), "[", op, "] expected at least one input, got an empty list");
  for (size_t i = 0; i < inputs.size(); ++i) {
    internal::check_dense(op, "input", inputs[i], static_cast<int64_t>(i));
    TORCH_CHECK(inputs[i].dim() > 0, "[", op,
                "] expected inputs with at least one dimension, got a 0-d tensor, at index ", i);
  }
  const at::Tensor& first = inputs[0];
  Joined joined{internal::wrap_dim(op, dim, first.dim()), first.sizes().vec()};
  const size_t along = static_cast<size_t>(joined.dim);
  joined.sizes[along] = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<int64_t> other = inputs[i].sizes().vec();
    TORCH_CHECK(other.size() == joined.sizes.size(), "[", op, "] expected ", first.dim(),
                " dimensions, as in size ", first.sizes(), ", got size ", inputs[i].sizes(),
                ", at index ", i, ", joining along dim ", joined.dim);
    const int64_t rows = std::exchange(other[along], joined.sizes[along]);
    TORCH_CHECK(other == joined.sizes, "[", op, "] expected size ", first.sizes(),
                " outside the joined dim, got ", inputs[i].sizes(), ", at index ", i,
                ", joining along dim ", joined.dim);
    TORCH_CHECK(inputs[i].scalar_type() == first.scalar_type(), "[", op, "] expected dtype ",
                first.scalar_type(), ", got ", inputs[i].scalar_type(), ", at index ", i);
    joined.sizes[along] += rows;
  }
  return joined;
}

// A tensor without elements has no format to speak of.
at::MemoryFormat common_format(at::TensorList inputs) {
  std::optional<at::MemoryFormat> common;
  for (const at::Tensor& input : inputs) {
    if (input.numel() == 0) {
      continue;
    }
    const at::MemoryFormat format = input.suggest_memory_format();
    if (common && format != *common) {
      return at::MemoryFormat::Contiguous;
    }
    common = format;
  }
  return common.value_or(at::MemoryFormat::Contiguous);
}

void copy_parts(at::TensorList inputs, const at::Tensor& output, int64_t dim,
                const GatherOptions& options) {
  DeviceCollectives& collectives =
      internal::choose_collectives(options.collectives, output.device(), inputs);
  int64_t start = 0;
  for (const at::Tensor& input : inputs) {
    collectives.copy(input, output.narrow(dim, start, input.size(dim)));
    start += input.size(dim);
  }
}

}  // namespace

at::Tensor gather(at::TensorList inputs, c10::Device destination, int64_t dim,
                  const GatherOptions& options) {
  const c10::Device home = normalize_device("gather", destination);
  const Joined joined = check_inputs("gather", inputs, dim);
  const at::NoGradGuard no_grad;
  const at::Tensor output =
      at::empty(joined.sizes, inputs[0].options().device(home), common_format(inputs));
  copy_parts(inputs, output, joined.dim, options);
  return output;
}

at::Tensor gather_out(at::TensorList inputs, const at::Tensor& output, int64_t dim,
                      const GatherOptions& options) {
  constexpr const char* kOp = "gather_out";
  const Joined joined = check_inputs(kOp, inputs, dim);
  internal::check_dense(kOp, "output", output, 0);
  TORCH_CHECK(output.sizes() == c10::IntArrayRef(joined.sizes), "[", kOp,
              "] expected an output of size ", c10::IntArrayRef(joined.sizes), ", got ",
              output.sizes());
  TORCH_CHECK(output.scalar_type() == inputs[0].scalar_type(), "[", kOp,
              "] expected an output of dtype ", inputs[0].scalar_type(), ", got ",
              output.scalar_type());
  for (size_t i = 0; i < inputs.size(); ++i) {
    internal::check_writable(kOp, output, inputs[i], static_cast<int64_t>(i));
    TORCH_CHECK(!internal::same_memory(output, inputs[i]), "[", kOp,
                "] expected an output apart from the inputs, got the input, at index ", i);
  }
  const at::NoGradGuard no_grad;
  copy_parts(inputs, output, joined.dim, options);
  return output;
}

}  // namespace lockstep::comm
