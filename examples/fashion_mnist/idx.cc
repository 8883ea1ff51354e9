// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/idx.h"

#include <ATen/ops/empty.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

namespace fashion_mnist {
namespace {

// Far above any data set of this family, and small enough that no product below overflows.
constexpr int64_t kMaxCount = 10'000'000;
constexpr size_t kBlockBytes = size_t{1} << 20;

// IDX: two zero bytes, the element type (8 is unsigned byte), the number of dimensions.
constexpr uint32_t kImagesMagic = 0x00000803;
constexpr uint32_t kLabelsMagic = 0x00000801;

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw DataError(path + ": " + what);
}

// A file read front to back, unpacked on the way if it is gzipped.
class ByteReader {
 public:
  explicit ByteReader(const std::string& path) : path_(path) {
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    if (!std::filesystem::exists(status)) fail(path, "no such file");
    if (!std::filesystem::is_regular_file(status)) fail(path, "is not a regular file");
    file_.reset(gzopen(path.c_str(), "rb"));
    if (file_ == nullptr) fail(path, std::string("cannot be opened: ") + std::strerror(errno));
  }

  // Reads up to `count` bytes; fewer only at the end of the file.
  size_t read(unsigned char* into, size_t count) {
    size_t done = 0;
    while (done < count) {
      const auto step = static_cast<unsigned>(std::min(count - done, kBlockBytes));
      const int got = gzread(file_.get(), into + done, step);
      check_stream(got);
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    return done;
  }

  uint32_t read_big_endian_word() {
    unsigned char bytes[4];
    if (read(bytes, sizeof bytes) != sizeof bytes) fail(path_, "ends within its header");
    return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
  }

 private:
  // A short read with Z_BUF_ERROR is how zlib reports a stream that ends too early.
  void check_stream(int got) const {
    int code = Z_OK;
    gzerror(file_.get(), &code);
    if (code == Z_BUF_ERROR) fail(path_, "the gzip stream is cut short");
    if (got < 0 && code == Z_ERRNO) fail(path_, "cannot be read");
    if (got < 0) fail(path_, "the gzip stream is damaged");
  }

  struct Close {
    void operator()(gzFile file) const { gzclose_r(file); }
  };
  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
};

void expect_magic(ByteReader& reader, const std::string& path, uint32_t magic, const char* kind) {
  if (reader.read_big_endian_word() != magic) {
    fail(path, std::string("is not an IDX file of ") + kind);
  }
}

int64_t read_count(ByteReader& reader, const std::string& path) {
  const int64_t count = reader.read_big_endian_word();
  if (count == 0) fail(path, "holds no samples");
  if (count > kMaxCount) {
    fail(path, "announces " + std::to_string(count) + " samples, more than the " +
                   std::to_string(kMaxCount) + " this program accepts");
  }
  return count;
}

// Exactly `count` bytes and then the end. The buffer grows block by block, as bytes arrive.
std::vector<unsigned char> read_rest(ByteReader& reader, const std::string& path, size_t count) {
  std::vector<unsigned char> bytes;
  while (bytes.size() < count) {
    const size_t before = bytes.size();
    const size_t step = std::min(kBlockBytes, count - before);
    bytes.resize(before + step);
    const size_t got = reader.read(bytes.data() + before, step);
    if (got < step) {
      fail(path, "is cut short: its header announces " + std::to_string(count) +
                     " bytes of data, it holds " + std::to_string(before + got));
    }
  }
  unsigned char extra = 0;
  if (reader.read(&extra, 1) != 0) {
    fail(path, "is longer than its header says (" + std::to_string(count) + " bytes of data)");
  }
  return bytes;
}

at::Tensor to_tensor(const std::vector<unsigned char>& bytes, at::IntArrayRef sizes) {
  at::Tensor result = at::empty(sizes, at::kByte);
  std::memcpy(result.data_ptr(), bytes.data(), bytes.size());
  return result;
}

std::string find_file(const std::string& folder, const std::string& name) {
  const auto plain = std::filesystem::path(folder) / name;
  std::error_code error;
  if (std::filesystem::exists(plain, error)) return plain.string();
  const std::string packed = plain.string() + ".gz";
  if (std::filesystem::exists(packed, error)) return packed;
  fail(folder, "holds neither " + name + " nor " + name + ".gz");
}

}  // namespace

at::Tensor read_images(const std::string& path) {
  ByteReader reader(path);
  expect_magic(reader, path, kImagesMagic, "images");
  const int64_t count = read_count(reader, path);
  const uint32_t rows = reader.read_big_endian_word();
  const uint32_t columns = reader.read_big_endian_word();
  if (rows != kImageSide || columns != kImageSide) {
    fail(path, "holds images of " + std::to_string(rows) + " x " + std::to_string(columns) +
                   " pixels, expected 28 x 28");
  }
  const auto bytes = read_rest(reader, path, static_cast<size_t>(count * kImageSide * kImageSide));
  return to_tensor(bytes, {count, kImageSide, kImageSide});
}

at::Tensor read_labels(const std::string& path) {
  ByteReader reader(path);
  expect_magic(reader, path, kLabelsMagic, "labels");
  const int64_t count = read_count(reader, path);
  const auto bytes = read_rest(reader, path, static_cast<size_t>(count));
  const auto wrong =
      std::find_if(bytes.begin(), bytes.end(), [](unsigned char b) { return b >= kNumClasses; });
  if (wrong != bytes.end()) {
    fail(path, "sample " + std::to_string(wrong - bytes.begin()) + " has label " +
                   std::to_string(*wrong) + ", expected 0 to " + std::to_string(kNumClasses - 1));
  }
  return to_tensor(bytes, {count});
}

Dataset read_dataset(const std::string& folder, Split split) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) fail(folder, "no such folder");
  const std::string prefix = split == Split::kTrain ? "train" : "t10k";
  const std::string images_path = find_file(folder, prefix + "-images-idx3-ubyte");
  const std::string labels_path = find_file(folder, prefix + "-labels-idx1-ubyte");
  Dataset dataset{read_images(images_path), read_labels(labels_path)};
  if (dataset.images.size(0) != dataset.labels.size(0)) {
    fail(labels_path, "holds " + std::to_string(dataset.labels.size(0)) + " labels for the " +
                          std::to_string(dataset.images.size(0)) + " images of " + images_path);
  }
  return dataset;
}

Dataset first_samples(const Dataset& dataset, int64_t count) {
  const int64_t kept = std::min(count, dataset.size());
  return {dataset.images.narrow(0, 0, kept), dataset.labels.narrow(0, 0, kept)};
}

}  // namespace fashion_mnist
