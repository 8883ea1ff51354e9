// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/idx.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <functional>

namespace fashion_mnist {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string word(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

std::string image_header(uint32_t count, uint32_t rows = 28, uint32_t columns = 28) {
  return word(0x803) + word(count) + word(rows) + word(columns);
}

// `count` images; every pixel of image i is i.
std::string image_file(int count) {
  std::string bytes = image_header(count);
  for (int i = 0; i < count; ++i) bytes += std::string(28 * 28, static_cast<char>(i));
  return bytes;
}

std::string label_file(const std::vector<char>& labels) {
  return word(0x801) + word(static_cast<uint32_t>(labels.size())) +
         std::string(labels.begin(), labels.end());
}

void write_plain(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

void write_gzipped(const std::string& path, const std::string& bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
}

std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class IdxTest : public ::testing::Test {
 protected:
  IdxTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = ::testing::TempDir() + "/idx_" + info->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  // The one sentence with which `read` fails.
  static std::string error_of(const std::function<void()>& read) {
    try {
      read();
    } catch (const DataError& error) {
      return error.what();
    }
    return "no error";
  }

  // Writes `bytes` plain and gzipped; both must fail with the same sentence, which is returned.
  std::string image_error(const std::string& bytes) { return error_both(bytes, read_images); }
  std::string label_error(const std::string& bytes) { return error_both(bytes, read_labels); }

  std::string folder_;

 private:
  std::string error_both(const std::string& bytes, at::Tensor (*read)(const std::string&)) {
    write_plain(path("x"), bytes);
    const std::string plain = error_of([&] { read(path("x")); });
    write_gzipped(path("x"), bytes);
    const std::string gzipped = error_of([&] { read(path("x")); });
    EXPECT_EQ(plain, gzipped);
    EXPECT_THAT(plain, HasSubstr(path("x") + ": "));
    EXPECT_THAT(plain, Not(HasSubstr("\n")));
    return plain;
  }
};

TEST_F(IdxTest, ReadsPlainAndGzippedFilesAlike) {
  write_plain(path("plain"), image_file(3));
  write_gzipped(path("packed.gz"), image_file(3));
  const at::Tensor images = read_images(path("plain"));
  EXPECT_EQ(images.sizes(), (std::vector<int64_t>{3, 28, 28}));
  EXPECT_EQ(images.scalar_type(), at::kByte);
  EXPECT_EQ(images[2][27][27].item<int64_t>(), 2);
  EXPECT_TRUE(at::equal(images, read_images(path("packed.gz"))));

  write_gzipped(path("labels"), label_file({0, 9, 5}));
  EXPECT_TRUE(at::equal(read_labels(path("labels")), at::tensor({0, 9, 5}, at::kByte)));
}

TEST_F(IdxTest, ReadsFilesLongerThanOneBlock) {
  write_gzipped(path("x"), image_file(3000));
  const at::Tensor images = read_images(path("x"));
  EXPECT_EQ(images.size(0), 3000);
  EXPECT_EQ(images[2999][0][0].item<int64_t>(), 2999 % 256);
}

TEST_F(IdxTest, RejectsAMissingFileAndAFolder) {
  EXPECT_EQ(error_of([&] { read_images(path("none")); }), path("none") + ": no such file");
  EXPECT_EQ(error_of([&] { read_images(folder_); }), folder_ + ": is not a regular file");
}

TEST_F(IdxTest, RejectsFilesThatEndWithinTheirHeader) {
  EXPECT_THAT(image_error(image_header(3).substr(0, 13)), HasSubstr("ends within its header"));
  EXPECT_THAT(label_error(""), HasSubstr("ends within its header"));
}

TEST_F(IdxTest, RejectsTheWrongMagic) {
  EXPECT_THAT(image_error(label_file({1, 2, 3})), HasSubstr("is not an IDX file of images"));
  EXPECT_THAT(label_error(image_file(1)), HasSubstr("is not an IDX file of labels"));
  EXPECT_THAT(label_error("<html>not found</html>"), HasSubstr("is not an IDX file of labels"));
}

TEST_F(IdxTest, RejectsAbsurdCountsWithoutAllocating) {
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  EXPECT_THAT(image_error(image_header(0xffffffff)), HasSubstr("announces 4294967295 samples"));
  EXPECT_THAT(image_error(image_header(0)), HasSubstr("holds no samples"));
  // The largest accepted count is 7.8 GB of pixels; the file has none of them.
  EXPECT_THAT(image_error(image_header(10'000'000)),
              HasSubstr("announces 7840000000 bytes of data, it holds 0"));
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 100 * 1024) << "KiB";
}

TEST_F(IdxTest, RejectsImagesOfAnotherSize) {
  EXPECT_THAT(image_error(image_header(1, 32, 28)), HasSubstr("32 x 28 pixels, expected 28 x 28"));
  EXPECT_THAT(image_error(image_header(1, 28, 0xffffffff)), HasSubstr("28 x 4294967295 pixels"));
}

TEST_F(IdxTest, RejectsFilesCutShort) {
  const std::string whole = image_file(2);
  EXPECT_THAT(image_error(whole.substr(0, whole.size() - 1)),
              HasSubstr("is cut short: its header announces 1568 bytes of data, it holds 1567"));
  EXPECT_THAT(label_error(label_file({1, 2, 3}).substr(0, 9)), HasSubstr("is cut short"));
}

TEST_F(IdxTest, RejectsExtraBytes) {
  EXPECT_THAT(image_error(image_file(2) + "x"), HasSubstr("is longer than its header says"));
  EXPECT_THAT(label_error(label_file({1}) + "x"), HasSubstr("is longer than its header says"));
}

TEST_F(IdxTest, RejectsALabelOutOfRange) {
  EXPECT_THAT(label_error(label_file({1, 2, 10, 3})),
              HasSubstr("sample 2 has label 10, expected 0 to 9"));
}

TEST_F(IdxTest, RejectsAGzipStreamCutAnywhere) {
  write_gzipped(path("whole"), image_file(5));
  const std::string bytes = read_bytes(path("whole"));
  for (size_t length = 2; length < bytes.size(); ++length) {
    write_plain(path("x"), bytes.substr(0, length));
    const std::string error = error_of([&] { read_images(path("x")); });
    EXPECT_THAT(error, ::testing::AnyOf(HasSubstr("cut short"), HasSubstr("header"),
                                        HasSubstr("damaged"), HasSubstr("is not an IDX file")))
        << "cut after " << length << " of " << bytes.size() << " bytes";
  }
}

TEST_F(IdxTest, RejectsADamagedGzipStream) {
  write_gzipped(path("x"), image_file(5));
  std::string bytes = read_bytes(path("x"));
  bytes[bytes.size() - 6] ^= 1;  // the checksum at the end
  write_plain(path("x"), bytes);
  EXPECT_THAT(error_of([&] { read_images(path("x")); }), HasSubstr("the gzip stream is damaged"));
}

TEST_F(IdxTest, ReadsASplitByItsUsualNames) {
  write_gzipped(path("train-images-idx3-ubyte.gz"), image_file(3));
  write_plain(path("train-labels-idx1-ubyte"), label_file({7, 8, 9}));
  const Dataset train = read_dataset(folder_, Split::kTrain);
  EXPECT_EQ(train.size(), 3);
  EXPECT_EQ(train.labels[1].item<int64_t>(), 8);
  EXPECT_EQ(error_of([&] { read_dataset(folder_, Split::kTest); }),
            folder_ + ": holds neither t10k-images-idx3-ubyte nor t10k-images-idx3-ubyte.gz");
}

TEST_F(IdxTest, RejectsAMissingFolder) {
  EXPECT_EQ(error_of([&] { read_dataset(path("none"), Split::kTrain); }),
            path("none") + ": no such folder");
}

TEST_F(IdxTest, RejectsCountsThatDiffer) {
  write_plain(path("t10k-images-idx3-ubyte"), image_file(3));
  write_plain(path("t10k-labels-idx1-ubyte"), label_file({1, 2}));
  EXPECT_EQ(error_of([&] { read_dataset(folder_, Split::kTest); }),
            path("t10k-labels-idx1-ubyte") + ": holds 2 labels for the 3 images of " +
                path("t10k-images-idx3-ubyte"));
}

TEST_F(IdxTest, KeepsTheFirstSamples) {
  write_plain(path("images"), image_file(3));
  write_plain(path("labels"), label_file({7, 8, 9}));
  const Dataset all{read_images(path("images")), read_labels(path("labels"))};
  EXPECT_EQ(first_samples(all, 2).size(), 2);
  EXPECT_EQ(first_samples(all, 2).images.size(0), 2);
  EXPECT_EQ(first_samples(all, 5).size(), 3);
}

}  // namespace
}  // namespace fashion_mnist
