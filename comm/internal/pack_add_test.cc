// SPDX-License-Identifier: Apache-2.0
// The kernel runs here on the host, every thread of every block, over the memory of simulated
// devices: its arithmetic and what pack_add gives it are the ones of CUDA.
#include "comm/internal/pack_add.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/copy_collectives.h"
#include "comm/internal/flat_buffer.h"
#include "comm/reduce_add_coalesced.h"
#include "testing/matchers.h"
#include "testing/random.h"
#include "testing/simdev/native_launch.h"
#include "testing/simdev/simdev.h"
#include "testing/simdev/test_environment.h"

namespace lockstep::comm::internal {
namespace {

using ::lockstep::testing::BitwiseEqual;
using ::lockstep::testing::random_tensor;
using ::lockstep::testing::ThrowsError;
using Row = std::vector<at::Tensor>;

const bool kDevicesInUse = simdev::use_in_tests({/*devices=*/2});

int launches = 0;

void* host(const void* device_address) {
  return simdev::native_memory(device_address)->host_address;
}

template <class T>
void run(const PackAddTable& table, const c10::Stream& stream) {
  const auto size = static_cast<int64_t>(sizeof(T));
  PackAddTable on_host = table;
  on_host.flat = host(table.flat);
  std::vector<simdev::NativeAccess> accesses;
  int64_t begin = table.begin;
  accesses.push_back({static_cast<char*>(table.flat) + begin * size,
                      static_cast<size_t>((table.ends[table.pieces - 1] - begin) * size), true});
  for (int p = 0; p < table.pieces; ++p) {
    for (int r = 0; r < table.rows; ++r) {
      const int s = p * table.rows + r;
      on_host.sources[s] = host(table.sources[s]);
      const auto bytes = static_cast<size_t>((table.ends[p] - begin) * size);
      accesses.push_back({table.sources[s], bytes, false});
    }
    begin = table.ends[p];
  }
  simdev::native_launch(stream, "pack_add", accesses);
  for (int64_t block = 0; block < pack_add_blocks(table, size); ++block) {
    for (int thread = 0; thread < kPackAddThreads; ++thread) {
      pack_add_thread<T>(on_host, block, thread);
    }
  }
}

const char* launch_on_host(const PackAddTable& table, Summand kind, const c10::Stream& stream) {
  ++launches;
  with_summand_type(kind, [&](auto element) { run<decltype(element)>(table, stream); });
  return nullptr;
}

const char* fail_to_launch(const PackAddTable&, Summand, const c10::Stream&) {
  return "out of registers";
}

class PackAddTest : public ::testing::Test {
 protected:
  PackAddTest() {
    set_pack_add_launch(at::kPrivateUse1, launch_on_host);
    launches = 0;
  }
  ~PackAddTest() override { set_pack_add_launch(at::kPrivateUse1, nullptr); }

  // One replica's tensors, not the same for two seeds.
  static Row row(const std::vector<std::vector<int64_t>>& sizes, int64_t seed,
                 c10::ScalarType dtype = at::kFloat) {
    Row tensors;
    for (const std::vector<int64_t>& size : sizes) {
      const at::Tensor values = random_tensor(size, seed++, at::kDouble) * 10;
      tensors.push_back(values.to(dtype).to(simdev::device(0)));
    }
    return tensors;
  }

  static at::Tensor successive_sum_of(const std::vector<Row>& rows) {
    at::Tensor sum = flatten(rows[0], rows[0]);
    for (size_t r = 1; r < rows.size(); ++r) {
      sum = sum + flatten(rows[r], rows[0]);
    }
    return sum;
  }
};

TEST_F(PackAddTest, GivesTheBitsOfSuccessiveAdditionsForEveryDtypeThatIsAdded) {
  for (const c10::ScalarType dtype :
       {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kBFloat16,
        at::kFloat, at::kDouble}) {
    const std::vector<Row> rows = {row({{7, 3}, {}, {129}}, 1, dtype),
                                   row({{7, 3}, {}, {129}}, 11, dtype),
                                   row({{7, 3}, {}, {129}}, 21, dtype)};
    const at::Tensor flat = pack_add(rows, rows[0]);
    ASSERT_TRUE(flat.defined()) << dtype;
    EXPECT_THAT(flat, BitwiseEqual(successive_sum_of(rows))) << dtype;
  }
}

TEST_F(PackAddTest, WritesPiecesOfAnySizeAtAnyOffset) {
  std::vector<std::vector<int64_t>> sizes;
  for (int64_t n = 0; n < 40; ++n) {
    sizes.push_back({n});
  }
  for (const int64_t large : {4095, 4096, 4097, 20000, 8192, 3}) {  // around the size of a block
    sizes.push_back({large});
  }
  for (const c10::ScalarType dtype : {at::kFloat, at::kChar, at::kHalf, at::kDouble}) {
    const std::vector<Row> rows = {row(sizes, 1, dtype), row(sizes, 101, dtype)};
    EXPECT_THAT(pack_add(rows, rows[0]), BitwiseEqual(successive_sum_of(rows))) << dtype;
  }
}

TEST_F(PackAddTest, ReadsSourcesThatAreAlignedDifferently) {
  const at::Tensor base = row({{1000}}, 1)[0];
  for (int64_t a = 0; a < 5; ++a) {
    for (int64_t b = 0; b < 5; ++b) {
      const std::vector<Row> rows = {{base.narrow(0, a, 301)}, {base.narrow(0, 500 + b, 301)}};
      EXPECT_THAT(pack_add(rows, rows[0]), BitwiseEqual(successive_sum_of(rows))) << a << ", " << b;
    }
  }
}

TEST_F(PackAddTest, KeepsTheMemoryOrderOfTheFirstRow) {
  const auto last = at::MemoryFormat::ChannelsLast;
  const std::vector<Row> rows = {{row({{2, 3, 4, 5}}, 1)[0].contiguous(last)},
                                 {row({{2, 3, 4, 5}}, 2)[0].contiguous(last)}};
  const at::Tensor sum = unflatten(pack_add(rows, rows[0]), rows[0])[0];
  EXPECT_TRUE(sum.is_contiguous(last));
  EXPECT_THAT(sum, BitwiseEqual(rows[0][0] + rows[1][0]));
}

TEST_F(PackAddTest, IsOneKernelForEachTableThatIsFull) {
  const auto launches_for = [](int64_t pieces, int64_t replicas) {
    const std::vector<std::vector<int64_t>> sizes(static_cast<size_t>(pieces), {5});
    std::vector<Row> rows;
    for (int64_t r = 0; r < replicas; ++r) {
      rows.push_back(row(sizes, 1000 * r));
    }
    launches = 0;
    EXPECT_THAT(pack_add(rows, rows[0]), BitwiseEqual(successive_sum_of(rows)));
    return launches;
  };
  EXPECT_EQ(launches_for(160, 2), 1);
  EXPECT_EQ(launches_for(161, 2), 2);
  EXPECT_EQ(launches_for(6, 51), 1);
  EXPECT_EQ(launches_for(7, 51), 2);
}

TEST_F(PackAddTest, NeedsNoKernelForTensorsWithoutElements) {
  const std::vector<Row> rows = {row({{0}, {3, 0}}, 1), row({{0}, {3, 0}}, 2)};
  EXPECT_EQ(pack_add(rows, rows[0]).numel(), 0);
  EXPECT_EQ(launches, 0);
}

TEST_F(PackAddTest, DeclinesWhatNoKernelCanDo) {
  const Row plain = row({{4, 4}}, 1);
  EXPECT_FALSE(pack_add({plain}, plain).defined()) << "nothing to add";
  EXPECT_FALSE(pack_add({plain, {plain[0].t()}}, plain).defined()) << "another order";
  const Row gaps = {row({{4, 8}}, 1)[0].narrow(1, 0, 4)};
  EXPECT_FALSE(pack_add({gaps, gaps}, gaps).defined()) << "gaps";
  const Row complex = row({{4, 4}}, 1, at::kComplexFloat);
  EXPECT_FALSE(pack_add({complex, complex}, complex).defined()) << "complex numbers";
  const Row negated = {at::imag(complex[0].conj())};
  EXPECT_FALSE(pack_add({negated, negated}, negated).defined()) << "a sign to be applied";
  EXPECT_FALSE(pack_add({plain, {plain[0].to(simdev::device(1))}}, plain).defined()) << "device";
  const Row tiny = {plain[0].to(at::kFloat8_e5m2)};
  EXPECT_FALSE(pack_add({tiny, tiny}, tiny).defined()) << "dtype";
  const Row cpu = {plain[0].cpu()};
  EXPECT_FALSE(pack_add({cpu, cpu}, cpu).defined()) << "no kernel for the CPU";
  EXPECT_EQ(launches, 0);
}

TEST_F(PackAddTest, RunsOnTheCurrentStreamOfTheTensorsDevice) {
  const c10::Device device = simdev::device(1);
  const c10::StreamGuard side(c10::impl::VirtualGuardImpl(device.type()).getNewStream(device));
  const c10::DeviceGuard elsewhere(simdev::device(0));
  const std::vector<Row> rows = {{at::full({5}, 1.5, device)}, {at::full({5}, 2.0, device)}};
  EXPECT_THAT(pack_add(rows, rows[0]), BitwiseEqual(at::full({5}, 3.5, device)));
}

TEST_F(PackAddTest, SaysWhatTheDeviceSaidIfAKernelDoesNotStart) {
  set_pack_add_launch(at::kPrivateUse1, fail_to_launch);
  const std::vector<Row> rows = {row({{3}}, 1), row({{3}}, 2)};
  EXPECT_THAT([&] { pack_add(rows, rows[0]); },
              ThrowsError("[pack_add] expected to start a kernel on simdev:0, got: out of "
                          "registers"));
}

TEST_F(PackAddTest, AddsTheReplicasOfOneDeviceInReduceAddCoalesced) {
  const std::vector<std::vector<int64_t>> sizes = {{64, 3, 3}, {64}, {10, 64}, {10}};
  const std::vector<Row> rows = {row(sizes, 1), row(sizes, 11), row(sizes, 21)};
  const std::vector<at::Tensor> sums = reduce_add_coalesced(rows, simdev::device(0));
  EXPECT_EQ(launches, 1);
  set_pack_add_launch(at::kPrivateUse1, nullptr);
  const std::vector<at::Tensor> expected = reduce_add_coalesced(rows, simdev::device(0));
  EXPECT_EQ(launches, 1);
  for (size_t t = 0; t < sums.size(); ++t) {
    EXPECT_THAT(sums[t], BitwiseEqual(expected[t]));
  }
}

// Gives tensors of one byte and more to the calls for many, unpacked.
class NothingIsPacked : public CopyCollectives {
 public:
  int64_t unpacked_bytes() const override { return 1; }
};

TEST_F(PackAddTest, IsOneKernelAlsoWhereTheEngineTakesLargeTensorsUnpacked) {
  NothingIsPacked engine;
  CoalesceOptions options;
  options.collectives = &engine;
  const std::vector<Row> rows = {row({{7}, {3, 2}, {1}}, 1), row({{7}, {3, 2}, {1}}, 11)};
  reduce_add_coalesced(rows, simdev::device(0), options);
  EXPECT_EQ(launches, 1);
  EXPECT_EQ(engine.counters().calls, 0);
  reduce_add_coalesced(rows, simdev::device(1), options);
  EXPECT_EQ(launches, 1);
  EXPECT_EQ(engine.counters().calls, 3);
}

}  // namespace
}  // namespace lockstep::comm::internal
