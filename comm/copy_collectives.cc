// SPDX-License-Identifier: Apache-2.0
#include "comm/copy_collectives.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "comm/internal/sum_into.h"

namespace lockstep::comm {
namespace {

// A copy to the CPU must have arrived when the call returns: no stream orders its readers.
void copy_tensor(const at::Tensor& source, const at::Tensor& destination) {
  destination.copy_(source, /*non_blocking=*/!destination.is_cpu());
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
