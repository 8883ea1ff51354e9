// SPDX-License-Identifier: Apache-2.0
// curves: what a training run did, epoch by epoch, as a CSV table and as an SVG picture.
//   CsvWriter csv("run.csv");
//   csv.append(row);
//   write_svg("run.svg", rows);
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace fashion_mnist {

struct EpochRow {
  int64_t epoch = 0;  // from 1
  double train_loss = 0;
  double train_accuracy = 0;  // 0 to 1
  double test_loss = 0;
  double test_accuracy = 0;
  double seconds = 0;
  double samples_per_second = 0;
};

// A table that is whole on disk after each row, so that a run that dies leaves its past behind.
class CsvWriter {
 public:
  // Starts the file anew and writes the header line.
  // Throws:  std::runtime_error if the file cannot be written.
  explicit CsvWriter(const std::string& path);

  // Throws:  std::runtime_error if the row cannot be written.
  void append(const EpochRow& row);

 private:
  void flush();

  std::string path_;
  std::ofstream file_;
};

// The picture's text: loss on the left, accuracy on the right, one point per epoch.
std::string svg_picture(const std::vector<EpochRow>& rows);

// Throws:  std::runtime_error if the file cannot be written.
void write_svg(const std::string& path, const std::vector<EpochRow>& rows);

}  // namespace fashion_mnist
