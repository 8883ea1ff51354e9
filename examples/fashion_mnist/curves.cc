// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/curves.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <stdexcept>

namespace fashion_mnist {
namespace {

constexpr double kPanelWidth = 360;
constexpr double kPanelHeight = 220;
constexpr double kMargin = 50;
constexpr int kGridLines = 4;
constexpr const char* kTrainColour = "#1f77b4";
constexpr const char* kTestColour = "#d62728";

template <class... Args>
std::string format(const char* pattern, Args... args) {
  char buffer[256];
  std::snprintf(buffer, sizeof buffer, pattern, args...);
  return buffer;
}

struct Range {
  double low;
  double high;
  double fraction(double value) const { return (value - low) / (high - low); }
};

// The values' range with some air, and never empty.
Range range_of(const std::vector<double>& values) {
  if (values.empty()) return {0, 1};
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const double air = std::max(0.05 * (*high - *low), 0.01);
  return {*low - air, *high + air};
}

using Column = std::function<double(const EpochRow&)>;

std::vector<double> column_of(const std::vector<EpochRow>& rows, const Column& column) {
  std::vector<double> values;
  for (const EpochRow& row : rows) values.push_back(column(row));
  return values;
}

std::string text_at(double x, double y, const std::string& anchor, const std::string& text) {
  return format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor.c_str()) + text +
         "</text>\n";
}

// One panel: frame, grid, and a line for each of the two columns.
class Panel {
 public:
  Panel(double left, std::string title, std::vector<double> epochs)
      : left_(left), title_(std::move(title)), epochs_(std::move(epochs)), x_range_{0, 1} {
    if (!epochs_.empty()) x_range_ = {epochs_.front() - 0.5, epochs_.back() + 0.5};
  }

  std::string draw(const std::vector<double>& train, const std::vector<double>& test) const {
    std::vector<double> all = train;
    all.insert(all.end(), test.begin(), test.end());
    const Range y_range = range_of(all);
    return frame(y_range) + curve(train, y_range, kTrainColour) + curve(test, y_range, kTestColour);
  }

 private:
  double x_at(double epoch) const { return left_ + kPanelWidth * x_range_.fraction(epoch); }
  static double y_at(double value, const Range& range) {
    return kMargin + kPanelHeight * (1 - range.fraction(value));
  }

  std::string frame(const Range& y_range) const {
    std::string text = text_at(left_ + kPanelWidth / 2, kMargin - 14, "middle", title_);
    for (int line = 0; line <= kGridLines; ++line) {
      const double value = y_range.low + (y_range.high - y_range.low) * line / kGridLines;
      const double y = y_at(value, y_range);
      text += format("<path d=\"M%.1f %.1fh%.1f\" stroke=\"#ddd\"/>\n", left_, y, kPanelWidth);
      text += text_at(left_ - 6, y + 4, "end", format("%.3f", value));
    }
    // A label per epoch for short runs, about eight for long ones.
    const size_t stride = std::max<size_t>(1, (epochs_.size() + 7) / 8);
    for (size_t i = 0; i < epochs_.size(); i += stride) {
      text += text_at(x_at(epochs_[i]), kMargin + kPanelHeight + 18, "middle",
                      format("%.0f", epochs_[i]));
    }
    return text;
  }

  std::string curve(const std::vector<double>& values, const Range& range,
                    const char* colour) const {
    std::string points;
    std::string dots;
    for (size_t i = 0; i < values.size(); ++i) {
      const double x = x_at(epochs_[i]);
      const double y = y_at(values[i], range);
      points += format("%.1f,%.1f ", x, y);
      dots += format("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", x, y, colour);
    }
    return "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"" + std::string(colour) +
           "\" points=\"" + points + "\"/>\n" + dots;
  }

  double left_;
  std::string title_;
  std::vector<double> epochs_;
  Range x_range_;
};

[[noreturn]] void cannot_write(const std::string& path) {
  throw std::runtime_error(path + ": cannot be written");
}

}  // namespace

CsvWriter::CsvWriter(const std::string& path) : path_(path), file_(path) {
  file_ << "epoch,train_loss,train_accuracy,test_loss,test_accuracy,seconds,samples_per_second\n";
  flush();
}

void CsvWriter::append(const EpochRow& row) {
  file_ << row.epoch
        << format(",%.6f,%.6f,%.6f,%.6f,%.3f,%.1f\n", row.train_loss, row.train_accuracy,
                  row.test_loss, row.test_accuracy, row.seconds, row.samples_per_second);
  flush();
}

void CsvWriter::flush() {
  if (!file_.flush()) cannot_write(path_);
}

std::string svg_picture(const std::vector<EpochRow>& rows) {
  const double width = 2 * kPanelWidth + 3 * kMargin;
  const double height = kPanelHeight + 2 * kMargin;
  std::string text = format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" font-size=\"12\" "
      "font-family=\"sans-serif\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      width, height);
  const auto epochs =
      column_of(rows, [](const EpochRow& row) { return static_cast<double>(row.epoch); });
  text += Panel(kMargin, "loss by epoch", epochs)
              .draw(column_of(rows, [](const EpochRow& row) { return row.train_loss; }),
                    column_of(rows, [](const EpochRow& row) { return row.test_loss; }));
  text += Panel(2 * kMargin + kPanelWidth, "accuracy by epoch", epochs)
              .draw(column_of(rows, [](const EpochRow& row) { return row.train_accuracy; }),
                    column_of(rows, [](const EpochRow& row) { return row.test_accuracy; }));
  text += format("<g fill=\"%s\">", kTrainColour) + text_at(kMargin, height - 8, "start", "train") +
          format("</g>\n<g fill=\"%s\">", kTestColour) +
          text_at(kMargin + 50, height - 8, "start", "test") + "</g>\n";
  return text + "</svg>\n";
}

void write_svg(const std::string& path, const std::vector<EpochRow>& rows) {
  std::ofstream file(path);
  file << svg_picture(rows);
  if (!file.flush()) cannot_write(path);
}

}  // namespace fashion_mnist
