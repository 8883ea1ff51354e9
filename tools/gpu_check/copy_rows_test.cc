// SPDX-License-Identifier: Apache-2.0
// The measurement on a simulated device: that its rows are whole, not how fast anything is.
#include "tools/gpu_check/copy_rows.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/simdev/simdev.h"
#include "testing/simdev/test_environment.h"
#include "tools/gpu_check/event_timer.h"

namespace lockstep::gpu_check {
namespace {

using ::testing::HasSubstr;

const bool kDevicesInUse = simdev::use_in_tests();

TEST(EventTimerTest, RunsTheWorkOnce) {
  const at::Tensor x = at::zeros({8}, c10::TensorOptions(at::kFloat).device(simdev::device(0)));
  EXPECT_GT(device_seconds(simdev::device(0), [&] { x.add_(1); }), 0);
  EXPECT_EQ(x.sum().item<float>(), 8);
}

TEST(CopyRowsTest, HoldTheLimitAndEachVerb) {
  CopyOptions options;
  options.rounds = 3;
  options.max_repeats = 2;
  const std::vector<CopyRow> rows = measure_copies(simdev::device(0), 64 << 10, options);
  ASSERT_EQ(rows.size(), 4);
  EXPECT_EQ(rows[0].share_of_limit.median, 1);
  for (const CopyRow& row : rows) {
    EXPECT_EQ(row.bucket_bytes, 64 << 10);
    EXPECT_GT(row.seconds, 0) << row.name;
    EXPECT_GT(row.share_of_limit.low, 0) << row.name;
    EXPECT_FALSE(row.operations.has_value());
  }
  EXPECT_THAT(rows[0].operations_unknown, HasSubstr("not a CUDA device"));
}

TEST(CopyRowsTest, AreLinesOfATable) {
  CopyRow row;
  row.name = "broadcast";
  row.bucket_bytes = 4 << 20;
  row.seconds = 2e-6;
  row.bytes_per_second = 4.2e12;
  row.share_of_limit = {0.9, 0.875, 0.925, {}};
  row.operations = DeviceOperations{2, 1, 0};
  const std::string known = format_rows({row});
  EXPECT_THAT(known, HasSubstr("4 MiB"));
  EXPECT_THAT(known, HasSubstr("4200.0"));
  EXPECT_THAT(known, HasSubstr("0.900"));
  EXPECT_THAT(known, HasSubstr("[0.875, 0.925]"));
  EXPECT_THAT(known, HasSubstr("2 + 1 + 0"));
  row.operations.reset();
  row.operations_unknown = "no runtime";
  EXPECT_THAT(format_rows({row}), HasSubstr("not counted: no runtime"));
}

}  // namespace
}  // namespace lockstep::gpu_check
