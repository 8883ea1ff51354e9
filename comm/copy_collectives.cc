// SPDX-License-Identifier: Apache-2.0
#include "comm/copy_collectives.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <vector>

#include "comm/internal/sum_into.h"

namespace lockstep::comm {
namespace {

// A copy to the CPU must have arrived when the call returns: no stream orders its readers.
void copy_tensor(const at::Tensor& source, const at::Tensor& destination) {
  destination.copy_(source, /*non_blocking=*/!destination.is_cpu());
}

void reduce_into(at::TensorList inputs, const at::Tensor& destination, Reduction reduction) {
  internal::sum_into(inputs, destination);
  if (reduction == Reduction::kMean) {
    destination.div_(static_cast<int64_t>(inputs.size()));
  }
}

// Part `part` of `parts` along dim 0.
at::Tensor part_of(const at::Tensor& tensor, int64_t part, int64_t parts) {
  const int64_t rows = tensor.size(0) / parts;
  return tensor.narrow(0, part * rows, rows);
}

}  // namespace

void CopyCollectives::copy(const at::Tensor& source, const at::Tensor& destination) {
  const at::NoGradGuard no_grad;
  copy_tensor(source, destination);
  count(1, source);
}

void CopyCollectives::broadcast(const at::Tensor& source, at::TensorList destinations) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& destination : destinations) {
    copy_tensor(source, destination);
  }
  count(static_cast<int64_t>(destinations.size()), source);
}

void CopyCollectives::reduce_add(at::TensorList inputs, const at::Tensor& destination) {
  internal::sum_into(inputs, destination);
  const bool home = std::any_of(inputs.begin(), inputs.end(), [&](const at::Tensor& input) {
    return input.device() == destination.device();
  });
  count(static_cast<int64_t>(inputs.size()) - (home ? 1 : 0), destination);
}

void CopyCollectives::all_reduce(at::TensorList inputs, at::TensorList outputs,
                                 Reduction reduction) {
  const at::NoGradGuard no_grad;
  reduce_into(inputs, outputs[0], reduction);
  for (const at::Tensor& output : outputs.slice(1)) {
    copy_tensor(outputs[0], output);
  }
  count(2 * (static_cast<int64_t>(inputs.size()) - 1), outputs[0]);
}

void CopyCollectives::reduce_scatter(at::TensorList inputs, at::TensorList outputs,
                                     Reduction reduction) {
  const at::NoGradGuard no_grad;
  const int64_t parts = static_cast<int64_t>(outputs.size());
  for (int64_t part = 0; part < parts; ++part) {
    std::vector<at::Tensor> pieces;
    for (const at::Tensor& input : inputs) {
      pieces.push_back(part_of(input, part, parts));
    }
    reduce_into(pieces, outputs[part], reduction);
  }
  count(parts * (parts - 1), outputs[0]);
}

void CopyCollectives::all_gather(at::TensorList inputs, at::TensorList outputs) {
  const at::NoGradGuard no_grad;
  const int64_t parts = static_cast<int64_t>(inputs.size());
  for (const at::Tensor& output : outputs) {
    for (int64_t part = 0; part < parts; ++part) {
      copy_tensor(inputs[part], part_of(output, part, parts).view(inputs[part].sizes()));
    }
  }
  count(parts * (parts - 1), inputs[0]);
}

CollectiveCounters CopyCollectives::counters() const {
  CollectiveCounters counters;
  counters.calls = calls_.load();
  counters.messages = messages_.load();
  counters.bytes = bytes_.load();
  return counters;
}

void CopyCollectives::reset_counters() {
  calls_ = 0;
  messages_ = 0;
  bytes_ = 0;
}

void CopyCollectives::count(int64_t messages, const at::Tensor& message) {
  calls_ += 1;
  messages_ += messages;
  bytes_ += messages * static_cast<int64_t>(message.nbytes());
}

}  // namespace lockstep::comm
