// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/curves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace fashion_mnist {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

const EpochRow kFirst{1, 0.5, 0.8, 0.4, 0.85, 20.25, 2962.96};
const EpochRow kSecond{2, 0.3, 0.9, 0.35, 0.88, 20, 3000};

TEST(CsvWriterTest, HasEachRowOnDiskAtOnce) {
  const std::string path = ::testing::TempDir() + "/curves.csv";
  CsvWriter csv(path);
  const std::string header =
      "epoch,train_loss,train_accuracy,test_loss,test_accuracy,seconds,samples_per_second\n";
  EXPECT_EQ(read_file(path), header);
  csv.append(kFirst);
  const std::string first = "1,0.500000,0.800000,0.400000,0.850000,20.250,2963.0\n";
  EXPECT_EQ(read_file(path), header + first);
  csv.append(kSecond);
  EXPECT_EQ(read_file(path),
            header + first + "2,0.300000,0.900000,0.350000,0.880000,20.000,3000.0\n");
}

TEST(CsvWriterTest, NamesAFileItCannotWrite) {
  try {
    CsvWriter csv("/no/such/folder/x.csv");
    FAIL() << "expected an error";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "/no/such/folder/x.csv: cannot be written");
  }
}

TEST(SvgPictureTest, DrawsOnePointPerEpochAndCurve) {
  const std::string picture = svg_picture({kFirst, kSecond});
  EXPECT_THAT(picture, StartsWith("<svg "));
  EXPECT_THAT(picture, EndsWith("</svg>\n"));
  EXPECT_EQ(count(picture, "<polyline "), 4);
  EXPECT_EQ(count(picture, "<circle "), 8);
  EXPECT_THAT(picture, HasSubstr("loss by epoch"));
  EXPECT_THAT(picture, HasSubstr("accuracy by epoch"));
}

TEST(SvgPictureTest, PutsTheLargerValueHigher) {
  // Train loss falls from 0.5 to 0.3: the second point lies lower, at a larger y.
  const std::string picture = svg_picture({kFirst, kSecond});
  double x1 = 0, y1 = 0, x2 = 0, y2 = 0;
  const char* points = picture.c_str() + picture.find("points=\"");
  ASSERT_EQ(std::sscanf(points, "points=\"%lf,%lf %lf,%lf", &x1, &y1, &x2, &y2), 4);
  EXPECT_LT(x1, x2);
  EXPECT_LT(y1, y2);
}

TEST(SvgPictureTest, HoldsFiniteNumbersWithOneEqualOrNoRow) {
  const EpochRow flat{1, 0.5, 0.5, 0.5, 0.5, 1, 1};
  for (const auto& rows : {std::vector<EpochRow>{}, {flat}, {flat, flat}}) {
    EXPECT_THAT(svg_picture(rows), Not(HasSubstr("nan")));
    EXPECT_THAT(svg_picture(rows), Not(HasSubstr("inf")));
  }
}

TEST(SvgPictureTest, LabelsOnlySomeEpochsOfALongRun) {
  std::vector<EpochRow> rows;
  for (int64_t epoch = 1; epoch <= 400; ++epoch) rows.push_back({epoch, 1, 1, 1, 1, 1, 1});
  EXPECT_LT(count(svg_picture(rows), "<text "), 40);
}

TEST(WriteSvgTest, WritesThePicture) {
  const std::string path = ::testing::TempDir() + "/curves.svg";
  write_svg(path, {kFirst});
  EXPECT_EQ(read_file(path), svg_picture({kFirst}));
}

TEST(WriteSvgTest, NamesAFileItCannotWrite) {
  EXPECT_THROW(write_svg("/no/such/folder/x.svg", {kFirst}), std::runtime_error);
}

}  // namespace
}  // namespace fashion_mnist
