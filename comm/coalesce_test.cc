// SPDX-License-Identifier: Apache-2.0
#include "comm/coalesce.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/matchers.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::ThrowsError;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::vector<int64_t>> indices_of(const std::vector<CoalesceGroup>& groups) {
  std::vector<std::vector<int64_t>> indices;
  for (const CoalesceGroup& group : groups) {
    indices.push_back(group.indices);
  }
  return indices;
}

TEST(CoalesceGroupsTest, ClosesAGroupOnceItReachesTheLimit) {
  const std::vector<at::Tensor> tensors = {at::zeros({5}, at::kLong), at::zeros({5}, at::kFloat),
                                           at::zeros({5}, at::kLong), at::zeros({5}, at::kLong),
                                           at::zeros({10}, at::kInt), at::zeros({5}, at::kFloat)};
  const std::vector<CoalesceGroup> groups = coalesce_groups(tensors, 100);
  EXPECT_THAT(indices_of(groups),
              ElementsAre(ElementsAre(0, 2, 3), ElementsAre(1, 5), ElementsAre(4)));
  EXPECT_EQ(groups[0].bytes, 120);
  EXPECT_EQ(groups[0].dtype, at::kLong);
  EXPECT_EQ(groups[1].bytes, 40);
  EXPECT_EQ(groups[2].bytes, 40);
}

TEST(CoalesceGroupsTest, ClosesAtExactlyTheLimitAndOpensANewGroup) {
  const std::vector<at::Tensor> tensors(5, at::zeros({2}, at::kFloat));
  EXPECT_THAT(indices_of(coalesce_groups(tensors, 16)),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4)));
  EXPECT_THAT(indices_of(coalesce_groups(tensors, 17)),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4)));
}

TEST(CoalesceGroupsTest, PutsALargeTensorIntoAGroupOfItsOwn) {
  const std::vector<at::Tensor> tensors = {at::zeros({100}, at::kFloat),
                                           at::zeros({1}, at::kFloat)};
  EXPECT_THAT(indices_of(coalesce_groups(tensors, 8)), ElementsAre(ElementsAre(0), ElementsAre(1)));
}

TEST(CoalesceGroupsTest, KeepsTensorsWithoutElements) {
  const std::vector<at::Tensor> tensors = {at::zeros({0}, at::kByte), at::zeros({5}, at::kFloat),
                                           at::zeros({5}, at::kDouble)};
  EXPECT_THAT(indices_of(coalesce_groups(tensors, 256)),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
}

TEST(CoalesceGroupsTest, SkipsUndefinedEntries) {
  const std::vector<at::Tensor> tensors = {at::Tensor(), at::zeros({1}), at::Tensor(),
                                           at::zeros({1})};
  EXPECT_THAT(indices_of(coalesce_groups(tensors, 256)), ElementsAre(ElementsAre(1, 3)));
  EXPECT_THAT(coalesce_groups({}, 256), IsEmpty());
}

TEST(CoalesceGroupsTest, LeavesTensorsOfManyBytesAloneWithoutClosingTheGroupAround) {
  const std::vector<at::Tensor> tensors = {at::zeros({2}), at::zeros({8}), at::zeros({2})};
  EXPECT_THAT(indices_of(coalesce_groups(tensors, 256, 32)),
              ElementsAre(ElementsAre(1), ElementsAre(0, 2)));
  EXPECT_THAT(indices_of(coalesce_groups(tensors, 256, 33)), ElementsAre(ElementsAre(0, 1, 2)));
}

TEST(CoalesceGroupsTest, RejectsABufferOfNoBytes) {
  EXPECT_THAT([] { coalesce_groups({}, 0); },
              ThrowsError("[coalesce_groups] expected a positive buffer_bytes, got 0"));
  EXPECT_THAT([] { coalesce_groups({}, 8, 0); },
              ThrowsError("[coalesce_groups] expected a positive alone_bytes, got 0"));
}

}  // namespace
}  // namespace lockstep::comm
