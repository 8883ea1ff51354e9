// SPDX-License-Identifier: Apache-2.0
// Forward and backward while side streams are current: gradients arrive in order on every device.
#include "testing/side_streams.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>

#include "autograd_fns/broadcast.h"
#include "autograd_fns/gather.h"
#include "autograd_fns/reduce_add_coalesced.h"
#include "autograd_fns/scatter.h"
#include "comm/copy_collectives.h"
#include "comm/current_streams.h"
#include "testing/matchers.h"
#include "testing/random.h"

namespace lockstep::autograd_fns {
namespace {

using lockstep::comm::current_streams;
using lockstep::testing::AllClose;
using lockstep::testing::DeviceSet;
using lockstep::testing::order;
using lockstep::testing::random_tensor;
using lockstep::testing::side_streams;

using Tensors = std::vector<at::Tensor>;
using Devices = std::vector<c10::Device>;
// A loss of one leaf per device.
using Model = std::function<at::Tensor(const Tensors& leaves, const Devices& devices)>;

at::Tensor add_up(const Tensors& terms) {
  at::Tensor total = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) {
    total = total + terms[i].to(terms[0].device());
  }
  return total;
}

Tensors gradients_of(const at::Tensor& loss, const Tensors& leaves, bool create_graph = false) {
  return torch::autograd::grad({loss}, leaves, {}, /*retain_graph=*/create_graph, create_graph,
                               /*allow_unused=*/true);
}

// The square of a gradient, so that a second backward goes through the first.
at::Tensor penalty(const at::Tensor& loss, const Tensors& leaves) {
  Tensors terms;
  for (const at::Tensor& gradient : gradients_of(loss, leaves, /*create_graph=*/true)) {
    if (gradient.defined()) {
      terms.push_back(gradient.pow(2).sum());
    }
  }
  return add_up(terms);
}

class SideStreamsTest : public ::testing::TestWithParam<DeviceSet> {
 protected:
  const Devices& devices() const { return GetParam().devices; }
  static Tensors leaves_on(const Devices& devices) {
    Tensors leaves;
    for (const c10::Device device : devices) {
      leaves.push_back(random_tensor({12, 5}, leaves.size() + 1).to(device).requires_grad_());
    }
    return leaves;
  }

  // Several steps, so that memory is reused; backward where the streams of forward are current,
  // and elsewhere.
  void expect_gradients_in_order(const Model& model) const {
    const Devices cpus(devices().size(), c10::Device(at::kCPU));
    const Tensors on_host = leaves_on(cpus);
    const Tensors expected = gradients_of(model(on_host, cpus), on_host);
    const Tensors leaves = leaves_on(devices());
    const std::vector<c10::Stream> sides = side_streams(devices());
    for (int step = 0; step < 3; ++step) {
      const c10::MultiStreamGuard current(sides);
      expect_equal(gradients_of(model(leaves, devices()), leaves), expected);
    }
    const std::vector<c10::Stream> callers = current_streams(devices());
    for (int step = 0; step < 3; ++step) {
      at::Tensor loss;
      {
        const c10::MultiStreamGuard current(sides);
        loss = model(leaves, devices());
      }
      order(sides, callers);
      expect_equal(gradients_of(loss, leaves), expected);
    }
  }

 private:
  static void expect_equal(const Tensors& gradients, const Tensors& expected) {
    for (size_t i = 0; i < expected.size(); ++i) {
      const at::Tensor read = gradients[i].defined() ? gradients[i] * 1 : gradients[i];
      EXPECT_THAT(read, AllClose(expected[i], {/*rtol=*/1e-12, /*atol=*/1e-12})) << "leaf " << i;
    }
  }
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS_WITH_STREAMS(SideStreamsTest);

at::Tensor broadcast_model(const Tensors& leaves, const Devices& devices) {
  const Tensors copies = broadcast({leaves[0], leaves[0].narrow(0, 1, 2)}, devices);
  Tensors terms;
  for (size_t i = 0; i < devices.size(); ++i) {
    terms.push_back((copies[2 * i] * leaves[i]).tanh().sum() + copies[2 * i + 1].exp().sum());
  }
  return add_up(terms);
}

at::Tensor reduce_model(const Tensors& leaves, const Devices& devices) {
  std::vector<Tensors> rows;
  for (const at::Tensor& leaf : leaves) {
    rows.push_back({leaf.tanh(), (leaf * 2).t()});
  }
  const Tensors sums = reduce_add_coalesced(rows, devices.back());
  return sums[0].pow(2).sum() + sums[1].tanh().sum();
}

Model scatter_model(int64_t dim) {
  return [dim](const Tensors& leaves, const Devices& devices) {
    comm::ScatterOptions options;
    options.dim = dim;
    Tensors terms;
    for (const at::Tensor& piece : autograd_fns::scatter(leaves[0] * 2, devices, options)) {
      terms.push_back((piece * piece.tanh()).sum());
    }
    return add_up(terms);
  };
}

Model gather_model(int64_t dim) {
  return [dim](const Tensors& leaves, const Devices& devices) {
    Tensors outputs;
    for (const at::Tensor& leaf : leaves) {
      outputs.push_back((leaf * 3).tanh());
    }
    return gather(outputs, devices.back(), dim).pow(3).sum();
  };
}

at::Tensor data_parallel_model(const Tensors& leaves, const Devices& devices) {
  const Tensors weights = broadcast({leaves[0]}, devices);
  const Tensors pieces = scatter(leaves[1].to(devices[0]), devices);
  Tensors outputs;
  for (size_t i = 0; i < pieces.size(); ++i) {
    outputs.push_back(pieces[i].matmul(weights[i].t()).tanh());
  }
  return gather(outputs, devices[0]).pow(2).mean();
}

Model penalty_of(const Model& model) {
  return [model](const Tensors& leaves, const Devices& devices) {
    return penalty(model(leaves, devices), leaves).to(devices[0]);
  };
}

// An engine whose last write is on the stream of the destination, as that of an engine with
// receiving kernels. Plain copies run on the stream of the source.
class WritesAtTheDestination : public comm::CopyCollectives {
 public:
  void copy(const at::Tensor& source, const at::Tensor& destination) override {
    CopyCollectives::copy(source, destination);
    at::Tensor(destination).mul_(1);
  }
  void broadcast(const at::Tensor& source, at::TensorList destinations) override {
    CopyCollectives::broadcast(source, destinations);
    for (at::Tensor destination : destinations) {
      destination.mul_(1);
    }
  }
};

TEST_P(SideStreamsTest, Broadcast) { expect_gradients_in_order(broadcast_model); }
TEST_P(SideStreamsTest, ReduceAddCoalesced) { expect_gradients_in_order(reduce_model); }
TEST_P(SideStreamsTest, Scatter) { expect_gradients_in_order(scatter_model(0)); }
TEST_P(SideStreamsTest, ScatterAlongTheLastDim) { expect_gradients_in_order(scatter_model(-1)); }
TEST_P(SideStreamsTest, Gather) { expect_gradients_in_order(gather_model(0)); }
TEST_P(SideStreamsTest, GatherAlongTheLastDim) { expect_gradients_in_order(gather_model(-1)); }
TEST_P(SideStreamsTest, GatherByAnEngineThatWritesAtTheDestination) {
  WritesAtTheDestination engine;
  expect_gradients_in_order([&](const Tensors& leaves, const Devices& devices) {
    return gather(leaves, devices.back(), 0, {&engine}).pow(3).sum();
  });
}
TEST_P(SideStreamsTest, ReduceAddCoalescedByAnEngineThatWritesAtTheDestination) {
  WritesAtTheDestination engine;
  comm::CoalesceOptions options;
  options.collectives = &engine;
  expect_gradients_in_order([&](const Tensors& leaves, const Devices& devices) {
    std::vector<Tensors> rows;
    for (const at::Tensor& leaf : leaves) {
      rows.push_back({leaf});
    }
    return reduce_add_coalesced(rows, devices.back(), options)[0].pow(2).sum();
  });
}
TEST_P(SideStreamsTest, AllTogether) { expect_gradients_in_order(data_parallel_model); }

TEST_P(SideStreamsTest, SecondOrderOfBroadcast) {
  expect_gradients_in_order(penalty_of(broadcast_model));
}
TEST_P(SideStreamsTest, SecondOrderOfReduceAddCoalesced) {
  expect_gradients_in_order(penalty_of(reduce_model));
}
TEST_P(SideStreamsTest, SecondOrderOfScatter) {
  expect_gradients_in_order(penalty_of(scatter_model(0)));
}
TEST_P(SideStreamsTest, SecondOrderOfGather) {
  expect_gradients_in_order(penalty_of(gather_model(0)));
}
TEST_P(SideStreamsTest, SecondOrderOfAllTogether) {
  expect_gradients_in_order(penalty_of(data_parallel_model));
}

TEST_P(SideStreamsTest, GradientsOfEachDeviceMayStandAlone) {
  expect_gradients_in_order([](const Tensors& leaves, const Devices& devices) {
    const size_t last = devices.size() - 1;
    const Tensors copies = broadcast({leaves[0]}, devices);
    const Tensors pieces = scatter(leaves[last] * 2, devices);
    return copies[last].tanh().sum() + pieces.back().to(devices[last]).pow(2).sum();
  });
}

TEST_P(SideStreamsTest, SparseGradientsOfBroadcast) {
  const at::Tensor table = at::ones({10, 3}, devices()[0]).requires_grad_();
  const c10::MultiStreamGuard current(side_streams(devices()));
  Tensors terms;
  for (const at::Tensor& copy : broadcast({table}, devices())) {
    const at::Tensor rows = at::tensor({1, 2}).to(copy.device());
    terms.push_back(at::embedding(copy, rows, /*padding_idx=*/-1, /*scale_grad_by_freq=*/false,
                                  /*sparse=*/true)
                        .sum());
  }
  const at::Tensor gradient = gradients_of(add_up(terms), {table})[0];
  at::Tensor expected = at::zeros({10, 3});
  expected.narrow(0, 1, 2).fill_(static_cast<double>(devices().size()));
  ASSERT_TRUE(gradient.is_sparse());
  EXPECT_THAT(gradient.to_dense(), AllClose(expected));
}

TEST_P(SideStreamsTest, ALossOnTheHostReachesTheDevices) {
  const Tensors leaves = leaves_on(devices());
  const c10::MultiStreamGuard current(side_streams(devices()));
  Tensors outputs;
  for (const at::Tensor& leaf : leaves) {
    outputs.push_back(leaf * 3);
  }
  const Tensors gradients = gradients_of(gather(outputs, c10::Device(at::kCPU)).sum(), leaves);
  for (const at::Tensor& gradient : gradients) {
    EXPECT_THAT(gradient * 1, AllClose(at::full({12, 5}, 3.0, at::kDouble)));
  }
}

TEST_P(SideStreamsTest, ABatchInPinnedMemoryIsSplitOnStreamsOfItsOwn) {
  const at::Tensor batch = random_tensor({12, 5}, 1);
  const at::Tensor pinned = batch.pin_memory();
  const at::Tensor weight = random_tensor({5}, 2).to(devices()[0]).requires_grad_();
  comm::ScatterOptions options;
  const std::vector<c10::Stream> copying = side_streams(devices());
  options.streams.assign(copying.begin(), copying.end());
  for (int step = 0; step < 3; ++step) {
    const c10::MultiStreamGuard current(side_streams(devices()));
    const Tensors weights = broadcast({weight}, devices());
    Tensors terms;
    const Tensors pieces = autograd_fns::scatter(pinned, devices(), options);
    for (size_t i = 0; i < pieces.size(); ++i) {
      terms.push_back((pieces[i] * weights[i]).sum());
    }
    EXPECT_THAT(gradients_of(add_up(terms), {weight})[0] * 1, AllClose(batch.sum(0)));
  }
}

}  // namespace
}  // namespace lockstep::autograd_fns
