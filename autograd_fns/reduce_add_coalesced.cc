// SPDX-License-Identifier: Apache-2.0
#include "autograd_fns/reduce_add_coalesced.h"

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <string>
#include <utility>

#include "autograd_fns/broadcast.h"
#include "autograd_fns/node_ptr.h"
#include "autograd_fns/node_streams.h"
#include "comm/reduce_add_coalesced.h"

namespace lockstep::autograd_fns {
namespace {

using torch::autograd::variable_list;

// Gets one gradient per recorded sum and returns one per row and recorded sum, row-major.
class ReduceAddCoalescedBackward : public torch::autograd::Node {
 public:
  ReduceAddCoalescedBackward(std::vector<c10::Device> rows, const comm::CoalesceOptions& options)
      : rows_(std::move(rows)), options_(options) {}

  std::string name() const override { return "lockstep::ReduceAddCoalescedBackward"; }

  variable_list apply(variable_list&& grads) override {
    const size_t sums = grads.size();
    std::vector<size_t> asked;
    std::vector<c10::Device> devices;
    for (size_t i = 0; i < rows_.size(); ++i) {
      if (row_is_asked_for(i, sums)) {
        asked.push_back(i);
        devices.push_back(rows_[i]);
      }
    }
    variable_list result(rows_.size() * sums);
    if (asked.empty()) {
      return result;
    }
    const NodeStreams streams(*this, grads, devices);
    variable_list copies = autograd_fns::broadcast(grads, devices, options_);
    streams.join();
    for (size_t a = 0; a < asked.size(); ++a) {
      for (size_t t = 0; t < sums; ++t) {
        result[asked[a] * sums + t] = std::move(copies[a * sums + t]);
      }
    }
    return result;
  }

 private:
  bool row_is_asked_for(size_t row, size_t sums) const {
    for (size_t t = 0; t < sums; ++t) {
      if (task_should_compute_output(row * sums + t)) {
        return true;
      }
    }
    return false;
  }

  std::vector<c10::Device> rows_;
  comm::CoalesceOptions options_;
};

// The device of each row; of a row without defined entries, `otherwise`.
std::vector<c10::Device> row_devices(c10::ArrayRef<std::vector<at::Tensor>> inputs,
                                     c10::Device otherwise) {
  std::vector<c10::Device> devices;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor* first = nullptr;
    for (size_t t = 0; t < inputs[i].size(); ++t) {
      const at::Tensor& entry = inputs[i][t];
      if (!entry.defined()) {
        continue;
      }
      first = first ? first : &entry;
      TORCH_CHECK(entry.device() == first->device(),
                  "[reduce_add_coalesced] expected each row on one device, got ", first->device(),
                  " and ", entry.device(), " in row ", i, ", at index ", t);
    }
    devices.push_back(first ? first->device() : otherwise);
  }
  return devices;
}

}  // namespace

std::vector<at::Tensor> reduce_add_coalesced(c10::ArrayRef<std::vector<at::Tensor>> inputs,
                                             c10::Device destination,
                                             const comm::CoalesceOptions& options) {
  std::vector<c10::Device> devices = row_devices(inputs, destination);
  std::vector<at::Tensor> sums = comm::reduce_add_coalesced(inputs, destination, options);

  std::vector<size_t> recorded;
  for (size_t t = 0; t < sums.size(); ++t) {
    for (const auto& row : inputs) {
      if (torch::autograd::compute_requires_grad(row[t])) {
        recorded.push_back(t);
        break;
      }
    }
  }
  if (recorded.empty()) {
    return sums;
  }
  const auto node = make_node<ReduceAddCoalescedBackward>(std::move(devices), options);
  for (const auto& row : inputs) {
    for (size_t t : recorded) {
      node->add_next_edge(row[t].defined() ? torch::autograd::impl::gradient_edge(row[t])
                                           : torch::autograd::Edge());
    }
  }
  for (size_t t : recorded) {
    torch::autograd::set_history(sums[t], node);
  }
  return sums;
}

}  // namespace lockstep::autograd_fns
