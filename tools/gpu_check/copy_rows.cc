// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/copy_rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "comm/broadcast.h"
#include "comm/copy_collectives.h"
#include "comm/internal/pack_add.h"
#include "comm/reduce_add_coalesced.h"
#include "tools/gpu_check/event_timer.h"

namespace lockstep::gpu_check {
namespace {

struct Side {
  const char* name;
  int64_t passes;  // over the bucket's bytes: each tensor read or written is one
  std::function<void()> step;
};

// Tensors of the bucket, apart from each other in memory, with values that tell them apart.
std::vector<at::Tensor> make_bucket(c10::Device device, int64_t bytes, int64_t tensors) {
  const int64_t numel = bytes / static_cast<int64_t>(sizeof(float)) / tensors;
  std::vector<at::Tensor> bucket;
  for (int64_t i = 0; i < tensors; ++i) {
    bucket.push_back(at::arange(i, i + numel, c10::TensorOptions(at::kFloat).device(device)));
  }
  return bucket;
}

std::vector<at::Tensor> empty_like_each(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) {
    result.push_back(at::empty_like(tensor));
  }
  return result;
}

void check_equal(const char* name, const std::vector<at::Tensor>& actual,
                 const std::vector<at::Tensor>& expected, double factor) {
  for (size_t i = 0; i < expected.size(); ++i) {
    TORCH_CHECK(at::equal(actual[i], expected[i] * factor), "[copy_rate] ", name,
                " gave a wrong tensor at index ", i);
  }
}

void repeat(const std::function<void()>& step, int64_t times) {
  for (int64_t i = 0; i < times; ++i) {
    step();
  }
}

int64_t repeats_for(c10::Device device, const Side& side, const CopyOptions& options) {
  constexpr int64_t kWarmup = 5;
  repeat(side.step, kWarmup);
  const double once =
      device_seconds(device, [&] { repeat(side.step, kWarmup); }) / static_cast<double>(kWarmup);
  if (once * static_cast<double>(options.max_repeats) <= options.sample_seconds) {
    return options.max_repeats;
  }
  return std::max<int64_t>(1, std::llround(std::ceil(options.sample_seconds / once)));
}

// samples[side][round]: seconds of one call.
std::vector<std::vector<double>> take_samples(c10::Device device, const std::vector<Side>& sides,
                                              const CopyOptions& options) {
  std::vector<int64_t> repeats;
  for (const Side& side : sides) {
    repeats.push_back(repeats_for(device, side, options));
  }
  std::vector<std::vector<double>> samples(sides.size());
  for (int64_t round = 0; round < options.rounds; ++round) {
    for (size_t i = 0; i < sides.size(); ++i) {
      const double seconds = device_seconds(device, [&] { repeat(sides[i].step, repeats[i]); });
      samples[i].push_back(seconds / static_cast<double>(repeats[i]));
    }
  }
  return samples;
}

// The rate of a side over that of the limit, round by round.
std::vector<double> shares(const Side& side, const std::vector<double>& seconds, const Side& limit,
                           const std::vector<double>& limit_seconds) {
  const double passes = static_cast<double>(side.passes) / static_cast<double>(limit.passes);
  std::vector<double> result;
  for (size_t round = 0; round < seconds.size(); ++round) {
    result.push_back(passes * limit_seconds[round] / seconds[round]);
  }
  return result;
}

// The device type is without the kernel that adds replicas on one device while this lives.
class WithoutKernel {
 public:
  explicit WithoutKernel(c10::DeviceType type)
      : type_(type), kernel_(comm::internal::set_pack_add_launch(type, nullptr)) {}
  ~WithoutKernel() { comm::internal::set_pack_add_launch(type_, kernel_); }
  WithoutKernel(const WithoutKernel&) = delete;
  WithoutKernel& operator=(const WithoutKernel&) = delete;

  bool there_is_one() const { return kernel_ != nullptr; }

 private:
  const c10::DeviceType type_;
  const comm::internal::PackAddLaunch kernel_;
};

std::string size_text(int64_t bytes) {
  return bytes >= int64_t{1} << 20 ? std::to_string(bytes >> 20) + " MiB"
                                   : std::to_string(bytes >> 10) + " KiB";
}

std::string operations_text(const CopyRow& row) {
  if (!row.operations) {
    return "not counted";
  }
  return std::to_string(row.operations->kernels) + " + " + std::to_string(row.operations->copies) +
         " + " + std::to_string(row.operations->others);
}

}  // namespace

std::vector<CopyRow> measure_copies(c10::Device device, int64_t bucket_bytes,
                                    const CopyOptions& options) {
  const std::vector<at::Tensor> bucket = make_bucket(device, bucket_bytes, options.tensors);
  const std::vector<at::Tensor> other = make_bucket(device, bucket_bytes, options.tensors);
  const std::vector<std::vector<at::Tensor>> copies = {empty_like_each(bucket)};
  const std::vector<std::vector<at::Tensor>> rows = {bucket, other};
  const std::vector<c10::Device> twice(2, device);
  const at::Tensor flat = make_bucket(device, bucket_bytes, 1)[0];
  const at::Tensor flat_copy = at::empty_like(flat);
  comm::CoalesceOptions one_bucket;
  one_bucket.buffer_bytes = bucket_bytes;
  comm::CopyCollectives copies_only;  // NCCL takes large tensors unpacked
  one_bucket.collectives = &copies_only;

  check_equal("broadcast_coalesced", comm::broadcast_coalesced(bucket, twice, one_bucket)[1],
              bucket, 1);
  const auto sum = [&] { return comm::reduce_add_coalesced(rows, device, one_bucket); };
  const auto sum_without_kernel = [&] {
    const WithoutKernel none(device.type());
    return sum();
  };
  check_equal("reduce_add_coalesced", sum(), bucket, 2);
  check_equal("reduce_add_coalesced, packed", sum_without_kernel(), bucket, 2);
  comm::broadcast_coalesced_out(bucket, copies, one_bucket);
  check_equal("broadcast_coalesced_out", copies[0], bucket, 1);

  std::vector<Side> sides = {
      {"copy_ (the limit)", 2, [&] { flat_copy.copy_(flat); }},
      {"broadcast_coalesced_out", 2,
       [&] { comm::broadcast_coalesced_out(bucket, copies, one_bucket); }},
      {"broadcast_coalesced", 2, [&] { comm::broadcast_coalesced(bucket, twice, one_bucket); }},
      {"reduce_add_coalesced, packed", 3, [&] { sum_without_kernel(); }}};
  if (WithoutKernel(device.type()).there_is_one()) {
    sides.push_back({"reduce_add_coalesced, kernel", 3, [&] { sum(); }});
  }
  const auto samples = take_samples(device, sides, options);
  std::vector<CopyRow> result;
  for (size_t i = 0; i < sides.size(); ++i) {
    CopyRow row;
    row.name = sides[i].name;
    row.bucket_bytes = bucket_bytes;
    row.seconds = benchmarks::median(samples[i]);
    row.bytes_per_second = static_cast<double>(sides[i].passes * bucket_bytes) / row.seconds;
    row.share_of_limit =
        benchmarks::estimate_median(shares(sides[i], samples[i], sides[0], samples[0]));
    row.operations = count_device_operations(device, sides[i].step, &row.operations_unknown);
    result.push_back(row);
  }
  return result;
}

std::string format_rows(const std::vector<CopyRow>& rows) {
  std::ostringstream out;
  out << std::fixed << std::left << std::setw(30) << "verb" << std::right << std::setw(10)
      << "bucket" << std::setw(12) << "us" << std::setw(10) << "GB/s" << std::setw(12) << "of limit"
      << std::setw(20) << "95 %"
      << "  kernels + copies + others\n";
  std::string unknown;
  for (const CopyRow& row : rows) {
    std::ostringstream interval;
    interval << std::fixed << std::setprecision(3) << "[" << row.share_of_limit.low << ", "
             << row.share_of_limit.high << "]";
    out << std::left << std::setw(30) << row.name << std::right << std::setw(10)
        << size_text(row.bucket_bytes) << std::setprecision(2) << std::setw(12) << row.seconds * 1e6
        << std::setprecision(1) << std::setw(10) << row.bytes_per_second * 1e-9
        << std::setprecision(3) << std::setw(12) << row.share_of_limit.median << std::setw(20)
        << interval.str() << "  " << operations_text(row) << "\n";
    unknown = row.operations_unknown.empty() ? unknown : row.operations_unknown;
  }
  if (!unknown.empty()) {
    out << "not counted: " << unknown << "\n";
  }
  return out.str();
}

}  // namespace lockstep::gpu_check
