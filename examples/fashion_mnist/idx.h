// SPDX-License-Identifier: Apache-2.0
// idx: reads the IDX files of the MNIST family, gzipped or plain, into byte tensors.
// Use it for the data of this example. A file is never trusted: memory grows with the bytes that
// are really there, not with what a header announces.
//   Dataset train = read_dataset("/data/fashion", Split::kTrain);
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace fashion_mnist {

// What is wrong with a file, in one sentence that names the file.
class DataError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline constexpr int64_t kImageSide = 28;
inline constexpr int64_t kNumClasses = 10;

// Pixels and labels of one split, as stored: bytes.
struct Dataset {
  at::Tensor images;  // uint8 [N, 28, 28]
  at::Tensor labels;  // uint8 [N], each below kNumClasses

  int64_t size() const { return labels.size(0); }
};

enum class Split { kTrain, kTest };

// Reads one file of images.
// Shapes:  result [N, 28, 28], uint8, N at least 1.
// Throws:  DataError if the file is missing, cut short, longer than it says, damaged, or not a set
//          of 28 x 28 images.
at::Tensor read_images(const std::string& path);

// Reads one file of labels.
// Shapes:  result [N], uint8, N at least 1.
// Throws:  DataError as read_images, and if a label is not below kNumClasses.
at::Tensor read_labels(const std::string& path);

// Reads the two files of a split from `folder`, under the data set's usual names; of a file that is
// there both plain and as .gz the plain one is read.
// Throws:  DataError as above, if the folder or a file is missing, or if the counts differ.
Dataset read_dataset(const std::string& folder, Split split);

// The first `count` samples; all of them if there are not that many.
Dataset first_samples(const Dataset& dataset, int64_t count);

}  // namespace fashion_mnist
