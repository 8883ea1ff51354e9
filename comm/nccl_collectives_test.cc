// SPDX-License-Identifier: Apache-2.0
// What NCCL is asked to do, and when it is not asked. That the results are those of copies is shown
// by the suites over device sets, which hold this engine too.
#include "comm/nccl_collectives.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/broadcast_coalesced.h"
#include "comm/reduce_add_coalesced.h"
#include "testing/fake_nccl/simulated_nccl.h"
#include "testing/matchers.h"
#include "testing/summands.h"

namespace lockstep::comm {
namespace {

using ::lockstep::fake_nccl::simulated_nccl;
using ::lockstep::simdev::first_devices;
using ::lockstep::testing::BitwiseEqual;
using ::lockstep::testing::random_on_each;
using ::lockstep::testing::successive_sum;

const bool kDevicesInUse = fake_nccl::use_in_tests({/*devices=*/4});

struct NcclWork {
  long long calls;
  long long kernels;
  long long groups;
  long long bytes;
};
bool operator==(const NcclWork& a, const NcclWork& b) {
  return a.calls == b.calls && a.kernels == b.kernels && a.groups == b.groups && a.bytes == b.bytes;
}
void PrintTo(const NcclWork& work, std::ostream* os) {
  *os << work.calls << " calls, " << work.kernels << " kernels, " << work.groups << " groups, "
      << work.bytes << " bytes";
}

// What NCCL did since the last call.
NcclWork take_nccl_work() {
  const FakeNcclCounters counters = fake_nccl::counters();
  fake_nccl::reset_counters();
  return {counters.calls, counters.kernels, counters.groups, counters.bytes_sent};
}
const NcclWork kNone = {0, 0, 0, 0};

class NcclCollectivesTest : public ::testing::Test {
 protected:
  void SetUp() override { fake_nccl::reset_counters(); }
  NcclCollectives engine_{simulated_nccl()};
};

// --- what NCCL does --------------------------------------------------------------------------

TEST_F(NcclCollectivesTest, EachCallIsOneGroupWithOneKernelOnEachDevice) {
  for (const int n : {2, 3, 4}) {
    const std::vector<at::Tensor> x = random_on_each(first_devices(n), {n, 5});
    const long long bytes = 20LL * n;
    engine_.broadcast(x[0], at::TensorList(x).slice(1));
    EXPECT_EQ(take_nccl_work(), (NcclWork{n, n, 1, (n - 1) * bytes}));
    engine_.reduce_add(x, at::empty_like(x[1]));
    EXPECT_EQ(take_nccl_work(), (NcclWork{n, n, 1, (n - 1) * bytes}));
    engine_.all_reduce(x, x, Reduction::kSum);
    EXPECT_EQ(take_nccl_work(), (NcclWork{n, n, 1, 2 * (n - 1) * bytes}));
    std::vector<at::Tensor> parts;
    for (const at::Tensor& input : x) {
      parts.push_back(at::empty({1, 5}, input.options()));
    }
    engine_.reduce_scatter(x, parts, Reduction::kSum);
    EXPECT_EQ(take_nccl_work(), (NcclWork{n, n, 1, (n - 1) * bytes}));
    engine_.all_gather(parts, x);
    EXPECT_EQ(take_nccl_work(), (NcclWork{n, n, 1, (n - 1) * bytes}));
  }
}

TEST_F(NcclCollectivesTest, AnyDtypeIsBroadcastAsBytes) {
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kComplexDouble, at::kShort,
                                     at::kUInt16, at::kUInt64, at::kBool, at::kFloat8_e4m3fn}) {
    const at::Tensor source = at::arange(6).to(dtype).to(simdev::device(0));
    const at::Tensor destination =
        at::empty_like(source, source.options().device(simdev::device(1)));
    engine_.broadcast(source, destination);
    EXPECT_THAT(destination.view(at::kByte), BitwiseEqual(source.view(at::kByte).cpu())) << dtype;
    EXPECT_EQ(take_nccl_work().groups, 1) << dtype;
  }
}

TEST_F(NcclCollectivesTest, SumsOfDtypesThatNcclKnowsAreItsOwn) {
  for (const at::ScalarType dtype :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kComplexFloat, at::kComplexDouble,
        at::kChar, at::kByte, at::kInt, at::kLong, at::kBool}) {
    const std::vector<at::Tensor> x = random_on_each(first_devices(3), {9}, dtype);
    const at::Tensor sum = at::empty_like(x[2]);
    engine_.reduce_add(x, sum);
    EXPECT_THAT(sum, BitwiseEqual(successive_sum(x))) << dtype;
    EXPECT_EQ(take_nccl_work().groups, 1) << dtype;
  }
}

TEST_F(NcclCollectivesTest, BoolSumsAreALogicalOr) {
  std::vector<at::Tensor> x;
  for (const c10::Device device : first_devices(3)) {
    x.push_back(at::ones({4}, at::device(device).dtype(at::kBool)));
  }
  const at::Tensor sum = at::empty_like(x[0]);
  engine_.reduce_add(x, sum);
  EXPECT_EQ(sum.view(at::kByte).to(at::kLong).sum().item<int64_t>(), 4) << "true holds exactly 1";
}

TEST_F(NcclCollectivesTest, MemoryFormatsWithoutGapsTravelAsTheyAre) {
  std::vector<at::Tensor> x = random_on_each(first_devices(2), {2, 3, 4, 4});
  for (at::Tensor& tensor : x) {
    tensor = tensor.contiguous(at::MemoryFormat::ChannelsLast);
  }
  const at::Tensor expected = x[0].cpu();
  engine_.broadcast(x[0], x[1]);
  EXPECT_THAT(x[1], BitwiseEqual(expected));
  EXPECT_EQ(take_nccl_work().groups, 1);
}

TEST_F(NcclCollectivesTest, VersionsOfWhatIsWrittenRise) {
  const std::vector<at::Tensor> x = random_on_each(first_devices(2), {3});
  engine_.broadcast(x[0], x[1]);
  EXPECT_EQ(x[0]._version(), 0);
  EXPECT_EQ(x[1]._version(), 1);
}

TEST_F(NcclCollectivesTest, CountsNcclsCallsAndAllMessages) {
  const std::vector<at::Tensor> x = random_on_each(first_devices(3), {5});
  engine_.broadcast(x[0], at::TensorList(x).slice(1));
  engine_.copy(x[0], x[1]);
  EXPECT_EQ(engine_.nccl_calls(), 1);
  EXPECT_EQ(engine_.counters().calls, 2);
  EXPECT_EQ(engine_.counters().messages, 3);
  EXPECT_EQ(engine_.counters().bytes, 60);
  engine_.reset_counters();
  EXPECT_EQ(engine_.nccl_calls(), 0);
  EXPECT_EQ(engine_.counters().messages, 0);
}

// --- several calls at once -------------------------------------------------------------------

TEST_F(NcclCollectivesTest, GroupedCallsAreOneLaunch) {
  const std::vector<at::Tensor> x = random_on_each(first_devices(3), {4});
  const std::vector<at::Tensor> y = random_on_each(first_devices(3), {6}, at::kLong);
  engine_.broadcast_grouped({{x[0], {x[1], x[2]}}, {y[0], {y[1], y[2]}}});
  EXPECT_EQ(take_nccl_work(), (NcclWork{6, 3, 1, 2 * (16 + 48)}));
  EXPECT_THAT(x[2], BitwiseEqual(x[0].cpu()));
  EXPECT_THAT(y[1], BitwiseEqual(y[0].cpu()));
  const at::Tensor x_sum = at::empty_like(x[0]);
  const at::Tensor y_sum = at::empty_like(y[2]);  // another root
  engine_.reduce_add_grouped({{x, x_sum}, {y, y_sum}});
  EXPECT_EQ(take_nccl_work(), (NcclWork{6, 3, 1, 2 * (16 + 48)}));
  EXPECT_THAT(x_sum, BitwiseEqual(successive_sum(x)));
  EXPECT_THAT(y_sum, BitwiseEqual(successive_sum(y)));
  EXPECT_EQ(engine_.nccl_calls(), 4);
}

TEST_F(NcclCollectivesTest, GroupedCallsOnOtherDevicesAreLaunchedApartAndTheRestIsCopied) {
  const std::vector<at::Tensor> x = random_on_each(first_devices(3), {4});
  const std::vector<at::Tensor> y = random_on_each(first_devices(2), {5});
  const std::vector<at::Tensor> z = random_on_each(first_devices(2), {6});
  const at::Tensor on_host = at::zeros({4});
  engine_.broadcast_grouped(
      {{x[0], {x[1], x[2]}}, {x[0], {on_host}}, {y[0], {y[1]}}, {z[0], {z[1]}}});
  EXPECT_EQ(take_nccl_work(), (NcclWork{7, 5, 2, 2 * 16 + 20 + 24}));
  EXPECT_THAT(on_host, BitwiseEqual(x[0].cpu()));
  EXPECT_THAT(z[1], BitwiseEqual(z[0].cpu()));
  engine_.broadcast_grouped({});
  engine_.reduce_add_grouped({});
  EXPECT_EQ(take_nccl_work(), kNone);
}

// Three tensors that are packed, and two that go as they are.
TEST_F(NcclCollectivesTest, CoalescedVerbsPackSmallTensorsAndLaunchLargeOnesTogether) {
  const int64_t large = engine_.unpacked_bytes() / 4;
  std::vector<std::vector<at::Tensor>> rows(3);
  long long bytes = 0;
  for (const int64_t count : {3, 5, 7}) {
    const std::vector<at::Tensor> small = random_on_each(first_devices(3), {count});
    const std::vector<at::Tensor> big = random_on_each(first_devices(3), {large + count - 3});
    for (size_t row = 0; row < 3; ++row) {
      rows[row].push_back(small[row]);
      if (count > 3) {
        rows[row].push_back(big[row]);
      }
    }
    bytes += 4 * (count + (count > 3 ? large + count - 3 : 0));
  }
  CoalesceOptions options;
  options.collectives = &engine_;
  broadcast_coalesced(rows[0], first_devices(3), options);
  EXPECT_EQ(take_nccl_work(), (NcclWork{9, 6, 2, 2 * bytes}));
  const std::vector<at::Tensor> sums = reduce_add_coalesced(rows, first_devices(3)[1], options);
  EXPECT_EQ(take_nccl_work(), (NcclWork{9, 6, 2, 2 * bytes}));
  for (size_t t = 0; t < sums.size(); ++t) {
    EXPECT_THAT(sums[t], BitwiseEqual(successive_sum({rows[0][t], rows[1][t], rows[2][t]}))) << t;
  }
  broadcast_coalesced_out(rows[0], {rows[1], rows[2]}, options);
  EXPECT_EQ(take_nccl_work(), (NcclWork{9, 6, 2, 2 * bytes}));
  for (size_t t = 0; t < rows[0].size(); ++t) {
    EXPECT_THAT(rows[2][t], BitwiseEqual(rows[0][t].cpu())) << t;
  }
}

// --- what copies do --------------------------------------------------------------------------

// A broadcast that NCCL must not see, and that arrives all the same.
void expect_copied(NcclCollectives& engine, const at::Tensor& source,
                   const std::vector<at::Tensor>& destinations) {
  engine.broadcast(source, destinations);
  for (const at::Tensor& destination : destinations) {
    EXPECT_THAT(destination, BitwiseEqual(source.cpu()));
  }
  EXPECT_EQ(take_nccl_work(), kNone);
}

TEST_F(NcclCollectivesTest, CopiesWhereADeviceIsListedTwice) {
  const std::vector<c10::Device> places = {simdev::device(0), simdev::device(1), simdev::device(1)};
  const std::vector<at::Tensor> x = random_on_each(places, {3});
  expect_copied(engine_, x[0], {x[1], x[2]});
  const at::Tensor sum = at::empty_like(x[0]);
  engine_.reduce_add(x, sum);
  EXPECT_THAT(sum, BitwiseEqual(successive_sum(x)));
  EXPECT_EQ(take_nccl_work(), kNone);
}

TEST_F(NcclCollectivesTest, CopiesBetweenLayoutsAndAcrossGaps) {
  const std::vector<at::Tensor> x = random_on_each(first_devices(2), {4, 4});
  expect_copied(engine_, x[0], {x[1].t()});
  expect_copied(engine_, x[0].slice(1, 0, 4, 2), {x[1].slice(1, 0, 4, 2)});
}

TEST_F(NcclCollectivesTest, CopiesWhatReadsOtherThanItLies) {
  const std::vector<at::Tensor> x = random_on_each(first_devices(2), {3}, at::kComplexFloat);
  expect_copied(engine_, x[0].conj(), {x[1]});
}

TEST_F(NcclCollectivesTest, CopiesToAndFromTheHostAndWithinOneDevice) {
  const at::Tensor here = at::ones({2}, at::device(simdev::device(0)));
  expect_copied(engine_, here, {at::zeros({2})});
  expect_copied(engine_, at::ones({2}), {here});
  expect_copied(engine_, here, {at::zeros_like(here)});
}

TEST_F(NcclCollectivesTest, CopiesNothingWhereThereIsNothing) {
  const std::vector<at::Tensor> x = random_on_each(first_devices(2), {0, 3});
  expect_copied(engine_, x[0], {x[1]});
}

TEST_F(NcclCollectivesTest, CopiesSumsThatNcclCannotAddOrBringHome) {
  const std::vector<at::Tensor> shorts = random_on_each(first_devices(2), {5}, at::kShort);
  const at::Tensor sum = at::empty_like(shorts[1]);
  engine_.reduce_add(shorts, sum);
  EXPECT_THAT(sum, BitwiseEqual(successive_sum(shorts)));
  const std::vector<at::Tensor> x = random_on_each(first_devices(2), {5});
  const at::Tensor elsewhere = at::empty_like(x[0], x[0].options().device(simdev::device(3)));
  engine_.reduce_add(x, elsewhere);
  EXPECT_THAT(elsewhere, BitwiseEqual(successive_sum(x)));
  EXPECT_EQ(take_nccl_work(), kNone);
}

}  // namespace
}  // namespace lockstep::comm
