// SPDX-License-Identifier: Apache-2.0
#include "comm/internal/pack_add.h"

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>

#include "comm/internal/plain_memory.h"

namespace lockstep::comm::internal {
namespace {

using Rows = c10::ArrayRef<std::vector<at::Tensor>>;

std::atomic<PackAddLaunch>& launch_for(c10::DeviceType device_type) {
  static std::array<std::atomic<PackAddLaunch>, c10::COMPILE_TIME_MAX_DEVICE_TYPES> launches{};
  return launches.at(static_cast<size_t>(device_type));
}

std::optional<Summand> summand_of(c10::ScalarType dtype) {
  switch (dtype) {
    case at::kBool:
      return Summand::kBool;
    case at::kByte:
    case at::kChar:
      return Summand::kInt8;
    case at::kShort:
      return Summand::kInt16;
    case at::kInt:
      return Summand::kInt32;
    case at::kLong:
      return Summand::kInt64;
    case at::kHalf:
      return Summand::kHalf;
    case at::kBFloat16:
      return Summand::kBFloat16;
    case at::kFloat:
      return Summand::kFloat;
    case at::kDouble:
      return Summand::kDouble;
    default:  // complex numbers too: at::add multiplies the second by one, which inf notices
      return std::nullopt;
  }
}

bool all_plain(Rows rows, at::TensorList like, c10::Device device) {
  return std::all_of(rows.begin(), rows.end(), [&](const std::vector<at::Tensor>& row) {
    return std::equal(row.begin(), row.end(), like.begin(),
                      [&](const at::Tensor& tensor, const at::Tensor& shape) {
                        return tensor.device() == device && is_plain_memory(tensor) &&
                               tensor.strides() == shape.strides();
                      });
  });
}

// Fills tables and starts a kernel for each that is full.
class Launches {
 public:
  Launches(const at::Tensor& flat, int rows, PackAddLaunch launch, Summand kind)
      : launch_(launch),
        kind_(kind),
        stream_(c10::impl::VirtualGuardImpl(flat.device().type()).getStream(flat.device())) {
    table_.flat = flat.mutable_data_ptr();
    table_.rows = rows;
    table_.pieces = 0;
    table_.begin = 0;
  }

  void add(Rows rows, size_t i, int64_t elements) {
    if (elements == 0) {
      return;
    }
    if ((table_.pieces + 1) * table_.rows > PackAddTable::kMaxSources) {
      start();
    }
    for (size_t r = 0; r < rows.size(); ++r) {
      table_.sources[static_cast<size_t>(table_.pieces * table_.rows) + r] =
          rows[r][i].const_data_ptr();
    }
    end_ += elements;
    table_.ends[table_.pieces++] = end_;
  }

  // Starts a kernel for what was added since the last one.
  void start() {
    if (table_.pieces == 0) {
      return;
    }
    const char* const problem = launch_(table_, kind_, stream_);
    TORCH_CHECK(problem == nullptr, "[pack_add] expected to start a kernel on ", stream_.device(),
                ", got: ", problem);
    table_.pieces = 0;
    table_.begin = end_;
  }

 private:
  const PackAddLaunch launch_;
  const Summand kind_;
  const c10::Stream stream_;
  PackAddTable table_;
  int64_t end_ = 0;
};

}  // namespace

PackAddLaunch set_pack_add_launch(c10::DeviceType device_type, PackAddLaunch launch) {
  return launch_for(device_type).exchange(launch);
}

bool has_pack_add(c10::DeviceType device_type) { return launch_for(device_type) != nullptr; }

at::Tensor pack_add(Rows rows, at::TensorList like) {
  const at::TensorOptions options = rows[0][0].options();
  const c10::Device device = options.device();
  const PackAddLaunch launch = launch_for(device.type());
  const std::optional<Summand> kind = summand_of(rows[0][0].scalar_type());
  if (launch == nullptr || !kind || rows.size() < 2 || rows.size() > PackAddTable::kMaxSources ||
      !all_plain(rows, like, device)) {
    return {};
  }
  int64_t count = 0;
  for (const at::Tensor& shape : like) {
    count += shape.numel();
  }
  const at::Tensor flat = at::empty({count}, options.requires_grad(false));
  const c10::DeviceGuard guard(device);
  Launches launches(flat, static_cast<int>(rows.size()), launch, *kind);
  for (size_t i = 0; i < like.size(); ++i) {
    launches.add(rows, i, like[i].numel());
  }
  launches.start();
  return flat;
}

}  // namespace lockstep::comm::internal
