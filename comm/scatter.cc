// SPDX-License-Identifier: Apache-2.0
#include "comm/scatter.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <numeric>

#include "comm/device_list.h"
#include "comm/internal/checks.h"
#include "comm/stream_order.h"

namespace lockstep::comm {
namespace {

using Streams = std::vector<std::optional<c10::Stream>>;

void check_rows_and_parts(const char* op, int64_t n, int64_t parts) {
  TORCH_CHECK(n >= 0, "[", op, "] expected n of at least 0, got ", n);
  TORCH_CHECK(parts > 0, "[", op, "] expected at least one part, got ", parts);
}

// Returns the dimension to split along, counted from the front.
int64_t check_input(const char* op, const at::Tensor& input, int64_t dim) {
  internal::check_dense(op, "input", input, 0);
  TORCH_CHECK(input.dim() > 0, "[", op,
              "] expected an input with at least one dimension, got a 0-d tensor");
  return internal::wrap_dim(op, dim, input.dim());
}

void check_chunk_sizes(const std::vector<int64_t>& sizes, const at::Tensor& input, int64_t dim,
                       size_t device_count) {
  TORCH_CHECK(sizes.size() == device_count, "[scatter] expected ", device_count,
              " chunk_sizes, one per device, got ", sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    TORCH_CHECK(sizes[i] >= 0, "[scatter] expected chunk_sizes of at least 0, got ", sizes[i],
                ", at index ", i);
  }
  const int64_t sum = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  TORCH_CHECK(sum == input.size(dim), "[scatter] expected chunk_sizes that sum to ",
              input.size(dim), ", the size of dim ", dim, ", got a sum of ", sum);
}

void check_streams(const char* op, const Streams& streams, c10::ArrayRef<c10::Device> places) {
  TORCH_CHECK(streams.size() <= places.size(), "[", op, "] expected at most ", places.size(),
              " streams, got ", streams.size());
  for (size_t i = 0; i < streams.size(); ++i) {
    if (streams[i]) {
      const c10::Device device = normalize_device(op, streams[i]->device());
      TORCH_CHECK(device == places[i], "[", op, "] expected a stream of ", places[i],
                  ", got one of ", device, ", at index ", i);
    }
  }
}

void check_output(const at::Tensor& output, const at::Tensor& input, int64_t dim, int64_t index) {
  constexpr const char* kOp = "scatter_out";
  internal::check_dense(kOp, "output", output, index);
  TORCH_CHECK(output.scalar_type() == input.scalar_type(), "[", kOp, "] expected dtype ",
              input.scalar_type(), ", got ", output.scalar_type(), ", at index ", index);
  TORCH_CHECK(output.dim() == input.dim(), "[", kOp, "] expected ", input.dim(),
              " dimensions, got ", output.dim(), ", at index ", index);
  for (int64_t d = 0; d < input.dim(); ++d) {
    TORCH_CHECK(d == dim || output.size(d) == input.size(d), "[", kOp, "] expected size ",
                input.sizes(), " outside dim ", dim, ", got ", output.sizes(), ", at index ",
                index);
  }
}

// The consumer's stream waits for the copy, and the copy for what that stream did before.
void copy_on_stream(const at::Tensor& source, const at::Tensor& destination,
                    const std::optional<c10::Stream>& stream, DeviceCollectives& collectives) {
  if (!stream || stream->device_type() == c10::DeviceType::CPU) {
    collectives.copy(source, destination);
    return;
  }
  const c10::impl::VirtualGuardImpl guard(stream->device_type());
  const c10::Stream current = guard.getStream(stream->device());
  make_wait(*stream, current);
  {
    const c10::StreamGuard on_stream(*stream);
    collectives.copy(source, destination);
  }
  make_wait(current, *stream);
}

std::optional<c10::Stream> stream_at(const Streams& streams, size_t i) {
  return i < streams.size() ? streams[i] : std::nullopt;
}

}  // namespace

std::vector<int64_t> chunk_sizes(int64_t n, int64_t parts) {
  check_rows_and_parts("chunk_sizes", n, parts);
  if (n == 0) {
    return std::vector<int64_t>(static_cast<size_t>(parts), 0);
  }
  const int64_t rows = (n + parts - 1) / parts;
  std::vector<int64_t> sizes;
  for (int64_t start = 0; start < n; start += rows) {
    sizes.push_back(std::min(rows, n - start));
  }
  return sizes;
}

std::vector<int64_t> even_sizes(int64_t n, int64_t parts) {
  check_rows_and_parts("even_sizes", n, parts);
  const int64_t count = std::clamp<int64_t>(n, 1, parts);
  std::vector<int64_t> sizes(static_cast<size_t>(count), n / count);
  std::for_each_n(sizes.begin(), n % count, [](int64_t& size) { ++size; });
  return sizes;
}

std::vector<at::Tensor> scatter(const at::Tensor& input, c10::ArrayRef<c10::Device> devices,
                                const ScatterOptions& options) {
  const std::vector<c10::Device> places = normalize_devices("scatter", devices);
  const int64_t dim = check_input("scatter", input, options.dim);
  if (options.chunk_sizes) {
    check_chunk_sizes(*options.chunk_sizes, input, dim, places.size());
  }
  check_streams("scatter", options.streams, places);
  const std::vector<int64_t> sizes =
      options.chunk_sizes ? *options.chunk_sizes
                          : chunk_sizes(input.size(dim), static_cast<int64_t>(places.size()));

  const at::NoGradGuard no_grad;
  DeviceCollectives& collectives =
      internal::choose_collectives(options.collectives, input.device(), places);
  std::vector<at::Tensor> pieces;
  int64_t start = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    // detach: a plain alias that shares the version counter, not a view autograd knows of.
    const at::Tensor view = input.narrow(dim, start, sizes[i]).detach();
    start += sizes[i];
    if (places[i] == normalize_device("scatter", input.device())) {
      pieces.push_back(view);
      continue;
    }
    pieces.push_back(
        at::empty_like(view, view.options().device(places[i]), at::MemoryFormat::Preserve));
    copy_on_stream(view, pieces.back(), stream_at(options.streams, i), collectives);
  }
  return pieces;
}

std::vector<at::Tensor> scatter_out(const at::Tensor& input, at::TensorList outputs,
                                    const ScatterOptions& options) {
  constexpr const char* kOp = "scatter_out";
  const int64_t dim = check_input(kOp, input, options.dim);
  TORCH_CHECK(!options.chunk_sizes, "[", kOp,
              "] expected no chunk_sizes, since the outputs define them");
  TORCH_CHECK(!outputs.empty(), "[", kOp, "] expected at least one output, got an empty list");
  std::vector<c10::Device> places;
  int64_t total = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    check_output(outputs[i], input, dim, static_cast<int64_t>(i));
    places.push_back(normalize_device(kOp, outputs[i].device()));
    total += outputs[i].size(dim);
  }
  TORCH_CHECK(total == input.size(dim), "[", kOp, "] expected outputs whose sizes of dim ", dim,
              " sum to ", input.size(dim), ", got a sum of ", total);
  check_streams(kOp, options.streams, places);

  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> views;
  int64_t start = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    views.push_back(input.narrow(dim, start, outputs[i].size(dim)));
    start += outputs[i].size(dim);
    if (!internal::same_memory(outputs[i], views[i])) {
      internal::check_writable(kOp, outputs[i], input, static_cast<int64_t>(i));
    }
  }
  DeviceCollectives& collectives =
      internal::choose_collectives(options.collectives, input.device(), places);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!internal::same_memory(outputs[i], views[i])) {
      copy_on_stream(views[i], outputs[i], stream_at(options.streams, i), collectives);
    }
  }
  return outputs.vec();
}

}  // namespace lockstep::comm
