// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "testing/fake_nccl/rank_set.h"
#include "testing/fake_nccl/simulated_nccl.h"
#include "testing/matchers.h"

namespace lockstep::fake_nccl {
namespace {

using comm::nccl::ScalarResidence;
using lockstep::testing::BitwiseEqual;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const bool kDevicesInUse = use_in_tests();

class RedOpRulesTest : public ::testing::Test {
 protected:
  Result create(RedOp* op, void* scalar, ScalarResidence residence, int rank = 0,
                DataType dtype = DataType::kFloat32) {
    return simulated_nccl().red_op_create_pre_mul_sum(op, scalar, dtype, residence, ranks_[rank]);
  }
  RedOp made(int rank = 0) {
    RedOp op = RedOp::kSum;
    EXPECT_EQ(create(&op, &scalar_, ScalarResidence::kHostImmediate, rank), Result::kSuccess);
    return op;
  }
  // Both ranks reduce, with one reduction each.
  Result reduce_both(RedOp first, RedOp second) {
    return grouped(2, [&](int rank) {
      return all_reduce(ranks_, rank, memory_[rank], memory_[rank], rank == 0 ? first : second);
    });
  }
  void expect_refused(Result result, const char* report) {
    EXPECT_EQ(result, Result::kInvalidArgument);
    EXPECT_THAT(take_reports(),
                ElementsAre(AllOf(HasSubstr("rank 0 (device 0)"), HasSubstr(report))));
  }

  const RankSet ranks_{2};
  const std::vector<at::Tensor> memory_ = on_devices(2, [](int) { return at::ones({4}); });
  float scalar_ = 0.5;
};

TEST_F(RedOpRulesTest, MayBeDestroyedOnceTheCallHasReturned) {
  const RedOp first = made(0), second = made(1);
  simulated_nccl().group_start();
  all_reduce(ranks_, 0, memory_[0], memory_[0], first);
  all_reduce(ranks_, 1, memory_[1], memory_[1], second);
  EXPECT_EQ(simulated_nccl().red_op_destroy(first, ranks_[0]), Result::kSuccess);
  EXPECT_EQ(simulated_nccl().red_op_destroy(second, ranks_[1]), Result::kSuccess);
  EXPECT_EQ(simulated_nccl().group_end(), Result::kSuccess);
  EXPECT_THAT(memory_[0].cpu(), BitwiseEqual(at::ones({4})));
}

TEST_F(RedOpRulesTest, IsNotUsedAfterThat) {
  const RedOp first = made(0);
  simulated_nccl().red_op_destroy(first, ranks_[0]);
  expect_refused(reduce_both(first, made(1)), "was destroyed");
  expect_refused(simulated_nccl().red_op_destroy(first, ranks_[0]), "was destroyed");
}

TEST_F(RedOpRulesTest, IsOneOfTheCommunicator) {
  const RedOp first = made(0), second = made(1);
  expect_refused(reduce_both(second, second), "is one of rank 1 (device 1) of communicator");
  expect_refused(simulated_nccl().red_op_destroy(second, ranks_[0]), "is one of rank 1");
  EXPECT_EQ(reduce_both(first, second), Result::kSuccess);
}

TEST_F(RedOpRulesTest, HasTheDtypeOfTheCall) {
  const RedOp op = made(0);
  const at::Tensor doubles = at::ones({4}, simdev::device(0)).to(at::kDouble);
  expect_refused(all_reduce(ranks_, 0, doubles, doubles, op), "with float32, got float64");
}

TEST_F(RedOpRulesTest, BuiltInOnesAreNotDestroyed) {
  expect_refused(simulated_nccl().red_op_destroy(RedOp::kMax, ranks_[0]), "max is built in");
}

TEST_F(RedOpRulesTest, NeedsAPlaceAScalarAndADtype) {
  RedOp op = RedOp::kSum;
  expect_refused(create(nullptr, &scalar_, ScalarResidence::kHostImmediate),
                 "expected a place for the reduction, got null");
  expect_refused(create(&op, nullptr, ScalarResidence::kHostImmediate),
                 "expected a place for the scalar, got null");
  expect_refused(create(&op, &scalar_, ScalarResidence::kHostImmediate, 0, DataType::kFloat8e5m2),
                 "expected a dtype that can be multiplied here, got float8e5m2");
}

TEST_F(RedOpRulesTest, TheScalarIsWhereItIsSaidToBe) {
  RedOp op = RedOp::kSum;
  expect_refused(create(&op, memory_[0].data_ptr(), ScalarResidence::kHostImmediate),
                 "expected a scalar of the host, got memory of device 0");
  expect_refused(create(&op, &scalar_, ScalarResidence::kDevice),
                 "expected a scalar in live memory of device 0, got none of any device");
  expect_refused(create(&op, memory_[1].data_ptr(), ScalarResidence::kDevice),
                 "expected a scalar in live memory of device 0, got memory of device 1");
}

TEST_F(RedOpRulesTest, ADevicesScalarIsReadWhenTheCallIsCarriedOut) {
  const auto factors = on_devices(2, [](int) { return at::ones({1}); });
  RedOp ops[2];
  for (int rank = 0; rank < 2; ++rank) {
    create(&ops[rank], factors[rank].data_ptr(), ScalarResidence::kDevice, rank);
  }
  for (const at::Tensor& factor : factors) {
    factor.fill_(3);
  }
  EXPECT_EQ(reduce_both(ops[0], ops[1]), Result::kSuccess);
  EXPECT_THAT(memory_[1].cpu(), BitwiseEqual(at::full({4}, 6.0)));
}

TEST_F(RedOpRulesTest, ADevicesScalarOutlivesTheCall) {
  std::optional<at::Tensor> factor = at::ones({1}, simdev::device(0));
  RedOp op = RedOp::kSum;
  create(&op, factor->data_ptr(), ScalarResidence::kDevice);
  const RedOp other = made(1);
  factor.reset();
  expect_refused(reduce_both(op, other), "was freed before the call was carried out");
}

TEST_F(RedOpRulesTest, AScalarAndNoneDoNotAgree) {
  EXPECT_EQ(reduce_both(made(0), RedOp::kSum), Result::kInvalidUsage);
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("expected all_reduce of 4 float32 with "
                                                    "premulsum, as rank 0 called, got all_reduce "
                                                    "of 4 float32 with sum")));
}

}  // namespace
}  // namespace lockstep::fake_nccl
