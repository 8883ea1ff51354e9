// SPDX-License-Identifier: Apache-2.0
// All verbs while side streams are current: each starts after them, and is ready on them.
#include "testing/side_streams.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "comm/all_gather.h"
#include "comm/all_reduce.h"
#include "comm/broadcast.h"
#include "comm/gather.h"
#include "comm/reduce_add.h"
#include "comm/reduce_add_coalesced.h"
#include "comm/reduce_scatter.h"
#include "comm/scatter.h"
#include "testing/matchers.h"
#include "testing/random.h"
#include "testing/simdev/test_environment.h"

namespace lockstep::comm {
namespace {

using ::lockstep::simdev::finds_fault;
using ::lockstep::testing::BitwiseEqual;
using ::lockstep::testing::DeviceSet;
using ::lockstep::testing::host_waits;
using ::lockstep::testing::random_tensor;
using ::lockstep::testing::side_streams;

using Tensors = std::vector<at::Tensor>;
const c10::Device kCpu(c10::kCPU);

Tensors flat(const std::vector<Tensors>& rows) {
  Tensors all;
  for (const Tensors& row : rows) {
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

class SideStreamsTest : public ::testing::TestWithParam<DeviceSet> {
 protected:
  const std::vector<c10::Device>& devices() const { return GetParam().devices; }
  BroadcastOptions engine() const { return {GetParam().collectives}; }
  ReduceAddOptions sums() const { return {GetParam().collectives}; }
  CoalesceOptions coalesce() const {
    CoalesceOptions options;
    options.collectives = GetParam().collectives;
    return options;
  }

  static at::Tensor values(uint64_t seed) { return random_tensor({12, 5}, seed, at::kFloat); }
  // One tensor per device, made on the device's current stream.
  Tensors one_each(uint64_t seed) const {
    Tensors tensors;
    for (const c10::Device device : devices()) {
      tensors.push_back(values(seed + tensors.size()).to(device, /*non_blocking=*/true));
    }
    return tensors;
  }
  Tensors empty_each() const {
    Tensors tensors;
    for (const c10::Device device : devices()) {
      tensors.push_back(at::empty({12, 5}, at::device(device)));
    }
    return tensors;
  }

  // Runs `verb` on inputs that side streams are still to make. Its results must be ready on these
  // streams and on no others, its inputs free to change, and the host must not have waited.
  void expect_ordered(const std::function<Tensors(const Tensors&)>& verb,
                      const std::function<Tensors(const Tensors&)>& on_host) const {
    const std::vector<c10::Stream> sides = side_streams(devices());
    Tensors inputs, results;
    {
      const c10::MultiStreamGuard current(sides);
      inputs = one_each(1);
      const int64_t waits = host_waits(devices());
      results = verb(inputs);
      EXPECT_EQ(host_waits(devices()), waits);
    }
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_TRUE(finds_fault([&] { results[i] + 1; }, {"nothing orders it after"}))
          << "result " << i << " is ready on a stream that nobody made current";
    }
    const c10::MultiStreamGuard current(sides);
    Tensors expected, copies;
    for (const at::Tensor& result : results) {
      copies.push_back(result.clone());
    }
    for (const at::Tensor& input : inputs) {
      input.zero_();
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      expected.push_back(values(1 + i));
    }
    expected = on_host(expected);
    ASSERT_EQ(copies.size(), expected.size());
    for (size_t i = 0; i < copies.size(); ++i) {
      EXPECT_THAT(copies[i], BitwiseEqual(expected[i])) << "result " << i;
    }
  }

  Tensors first_for_all(const Tensors& inputs) const {
    return Tensors(devices().size(), inputs[0]);
  }
  static Tensors sum(const Tensors& inputs) {
    at::Tensor total = inputs[0];
    for (size_t i = 1; i < inputs.size(); ++i) {
      total = total + inputs[i];
    }
    return {total};
  }
};
LOCKSTEP_INSTANTIATE_DEVICE_SETS_WITH_STREAMS(SideStreamsTest);

TEST_P(SideStreamsTest, Broadcast) {
  expect_ordered([&](const Tensors& inputs) { return broadcast(inputs[0], devices(), engine()); },
                 [&](const Tensors& inputs) { return first_for_all(inputs); });
}

TEST_P(SideStreamsTest, BroadcastOut) {
  expect_ordered(
      [&](const Tensors& inputs) { return broadcast_out(inputs[0], empty_each(), engine()); },
      [&](const Tensors& inputs) { return first_for_all(inputs); });
}

TEST_P(SideStreamsTest, BroadcastCoalesced) {
  expect_ordered(
      [&](const Tensors& inputs) {
        return flat(
            broadcast_coalesced({inputs[0], inputs[0].narrow(0, 2, 3)}, devices(), coalesce()));
      },
      [&](const Tensors& inputs) {
        return flat({devices().size(), Tensors{inputs[0], inputs[0].narrow(0, 2, 3)}});
      });
}

TEST_P(SideStreamsTest, BroadcastCoalescedOut) {
  expect_ordered(
      [&](const Tensors& inputs) {
        std::vector<Tensors> rows;
        for (const at::Tensor& copy : empty_each()) {
          rows.push_back({copy, at::empty_like(copy)});
        }
        broadcast_coalesced_out({inputs[0], inputs[0]}, rows, coalesce());
        return flat(rows);
      },
      [&](const Tensors& inputs) {
        return flat({devices().size(), Tensors{inputs[0], inputs[0]}});
      });
}

TEST_P(SideStreamsTest, ReduceAdd) {
  expect_ordered(
      [&](const Tensors& inputs) { return Tensors{reduce_add(inputs, devices().back(), sums())}; },
      sum);
}

TEST_P(SideStreamsTest, ReduceAddOut) {
  expect_ordered(
      [&](const Tensors& inputs) {
        return Tensors{reduce_add_out(inputs, empty_each().back(), sums())};
      },
      sum);
}

TEST_P(SideStreamsTest, ReduceAddCoalesced) {
  expect_ordered(
      [&](const Tensors& inputs) {
        std::vector<Tensors> rows;
        for (const at::Tensor& input : inputs) {
          rows.push_back({input, input});
        }
        return reduce_add_coalesced(rows, devices()[0], coalesce());
      },
      [&](const Tensors& inputs) {
        return flat({2, sum(inputs)});
      });
}

TEST_P(SideStreamsTest, AllReduce) {
  expect_ordered(
      [&](const Tensors& inputs) {
        return all_reduce(inputs, {Reduction::kSum, GetParam().collectives});
      },
      [&](const Tensors& inputs) { return first_for_all(sum(inputs)); });
}

TEST_P(SideStreamsTest, ReduceScatter) {
  const int64_t k = static_cast<int64_t>(devices().size());
  expect_ordered(
      [&](const Tensors& inputs) {
        return reduce_scatter(inputs, {Reduction::kSum, GetParam().collectives});
      },
      [&](const Tensors& inputs) { return sum(inputs)[0].chunk(k); });
}

TEST_P(SideStreamsTest, AllGather) {
  expect_ordered(
      [&](const Tensors& inputs) { return all_gather(inputs, {GetParam().collectives}); },
      [&](const Tensors& inputs) { return first_for_all({at::cat(inputs)}); });
}

TEST_P(SideStreamsTest, Scatter) {
  expect_ordered([&](const Tensors& inputs) { return scatter(inputs[0], devices()); },
                 [&](const Tensors& inputs) {
                   return inputs[0].chunk(static_cast<int64_t>(devices().size()));
                 });
}

TEST_P(SideStreamsTest, ScatterOut) {
  const int64_t k = static_cast<int64_t>(devices().size());
  expect_ordered(
      [&](const Tensors& inputs) {
        Tensors outputs;
        for (const at::Tensor& output : empty_each()) {
          outputs.push_back(output.narrow(0, 0, 12 / k));
        }
        return scatter_out(inputs[0], outputs);
      },
      [&](const Tensors& inputs) { return inputs[0].chunk(k); });
}

TEST_P(SideStreamsTest, Gather) {
  expect_ordered(
      [&](const Tensors& inputs) { return Tensors{gather(inputs, devices().back(), 1)}; },
      [&](const Tensors& inputs) { return Tensors{at::cat(inputs, 1)}; });
}

TEST_P(SideStreamsTest, GatherOut) {
  const int64_t k = static_cast<int64_t>(devices().size());
  expect_ordered(
      [&](const Tensors& inputs) {
        return Tensors{gather_out(inputs, at::empty({12 * k, 5}, devices()[0]))};
      },
      [&](const Tensors& inputs) { return Tensors{at::cat(inputs)}; });
}

TEST_P(SideStreamsTest, SparseTensors) {
  const std::vector<c10::Stream> sides = side_streams(devices());
  const c10::MultiStreamGuard current(sides);
  Tensors sparse;
  for (const at::Tensor& dense : one_each(1)) {
    sparse.push_back(dense.to_sparse());
  }
  const Tensors copies = broadcast(sparse[0], devices(), engine());
  const at::Tensor total = reduce_add(sparse, devices().back(), sums());
  for (const at::Tensor& copy : copies) {
    EXPECT_THAT(copy.to_dense(), BitwiseEqual(values(1)));
  }
  EXPECT_THAT(total.to_dense(), BitwiseEqual(sum([&] {
                Tensors dense;
                for (size_t i = 0; i < devices().size(); ++i) {
                  dense.push_back(values(1 + i));
                }
                return dense;
              }())[0]));
}

TEST_P(SideStreamsTest, TheHostMayReadAtOnceWhatGoesToTheHost) {
  const std::vector<c10::Stream> sides = side_streams(devices());
  const c10::MultiStreamGuard current(sides);
  const Tensors inputs = one_each(1);
  Tensors expected;
  for (size_t i = 0; i < inputs.size(); ++i) {
    expected.push_back(values(1 + i));
  }
  EXPECT_TRUE(at::equal(gather(inputs, kCpu), at::cat(expected)));
  EXPECT_TRUE(at::equal(reduce_add(inputs, kCpu), sum(expected)[0]));
  const at::Tensor pinned = at::empty({12, 5}).pin_memory();
  gather_out(inputs[0], pinned);
  EXPECT_TRUE(at::equal(pinned, expected[0]));
}

TEST_P(SideStreamsTest, MemoryOfEarlierCallsIsReusedInOrder) {
  const std::vector<c10::Stream> sides = side_streams(devices());
  const c10::MultiStreamGuard current(sides);
  for (int64_t step = 0; step < 8; ++step) {
    const Tensors pieces = scatter(values(1).to(devices()[0]), devices());
    Tensors products;
    for (const at::Tensor& copy : broadcast(pieces[0], devices(), engine())) {
      products.push_back(copy * 2);
    }
    EXPECT_THAT(reduce_add(products, devices()[0], sums()),
                BitwiseEqual(pieces[0] * 2 * static_cast<double>(devices().size())));
  }
}

}  // namespace
}  // namespace lockstep::comm
