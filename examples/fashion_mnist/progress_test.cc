// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace fashion_mnist {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class ProgressTest : public ::testing::Test {
 protected:
  Progress make(bool terminal) {
    return Progress(out_, {"epoch 1/2", 1000, terminal, [this] { return now_; }});
  }
  int64_t drawings() const {
    const std::string text = out_.str();
    return std::count(text.begin(), text.end(), '\r');
  }

  std::ostringstream out_;
  double now_ = 5;
};

double half() { return 0.5; }

TEST_F(ProgressTest, ShowsRateTimeLeftAndLossOnATerminal) {
  Progress progress = make(true);
  now_ = 9;
  progress.update(400, half);
  EXPECT_THAT(out_.str(), StartsWith("\repoch 1/2  [#########"));
  EXPECT_THAT(out_.str(), HasSubstr(" 40 %  100 samples/s  loss 0.5000  ETA 6 s"));
}

TEST_F(ProgressTest, RedrawsAtMostTenTimesASecond) {
  Progress progress = make(true);
  for (int step = 0; step < 1000; ++step) {
    now_ = 5 + step * 0.001;
    progress.update(step, half);
  }
  EXPECT_LE(drawings(), 10);
  EXPECT_GE(drawings(), 8);
}

TEST_F(ProgressTest, ReadsTheLossOnlyWhenItIsShown) {
  Progress progress = make(true);
  int reads = 0;
  for (int step = 0; step < 100; ++step) {
    now_ = 5 + step * 0.01;
    progress.update(step, [&] { return ++reads, 0.5; });
  }
  EXPECT_EQ(reads, drawings());
}

TEST_F(ProgressTest, WipesWhatALongerLineLeftBehind) {
  Progress progress = make(true);
  now_ = 6;
  progress.update(1, [] { return 12345.0; });
  const size_t longer = out_.str().size();
  now_ = 9;
  progress.update(900, half);
  EXPECT_GE(out_.str().size() - longer, longer);
}

TEST_F(ProgressTest, EndsTheLineWhenFinished) {
  Progress progress = make(true);
  now_ = 80;
  progress.update(1000, half);
  EXPECT_THAT(out_.str(), IsEmpty());
  progress.finish(1000, 0.25);
  EXPECT_THAT(out_.str(), HasSubstr("100 %"));
  EXPECT_THAT(out_.str(), EndsWith("loss 0.2500  took 1:15\n"));
}

TEST_F(ProgressTest, WritesPlainLinesElsewhere) {
  Progress progress = make(false);
  progress.update(1, half);
  EXPECT_THAT(out_.str(), IsEmpty());
  now_ = 15;
  progress.update(500, half);
  now_ = 16;
  progress.update(550, half);
  progress.finish(1000, half());
  EXPECT_EQ(out_.str(),
            "epoch 1/2   50 %  50 samples/s  loss 0.5000  ETA 10 s\n"
            "epoch 1/2  100 %  91 samples/s  loss 0.5000  took 11 s\n");
  EXPECT_THAT(out_.str(), Not(HasSubstr("\r")));
}

TEST_F(ProgressTest, SaysNoTimeLeftBeforeTheFirstSample) {
  Progress progress = make(true);
  progress.update(0, half);
  EXPECT_THAT(out_.str(), HasSubstr("0 samples/s  loss 0.5000  ETA ?"));
}

TEST(FormatSecondsTest, GrowsFromSecondsToHours) {
  EXPECT_EQ(format_seconds(0), "0 s");
  EXPECT_EQ(format_seconds(59.4), "59 s");
  EXPECT_EQ(format_seconds(75), "1:15");
  EXPECT_EQ(format_seconds(3700), "1:01:40");
}

TEST(IsTerminalTest, IsFalseForWhatIsNoFile) { EXPECT_FALSE(is_terminal(-1)); }

}  // namespace
}  // namespace fashion_mnist
