// SPDX-License-Identifier: Apache-2.0
// Makes the CUDA kernel known when a program that links it starts.
#include "comm/cuda/pack_add.h"
#include "comm/internal/pack_add.h"

namespace lockstep::comm::cuda {
namespace {

const char* launch(const internal::PackAddTable& table, internal::Summand kind,
                   const c10::Stream& stream) {
  return launch_pack_add(table, kind, stream.native_handle());
}

[[maybe_unused]] const bool registered = [] {
  internal::set_pack_add_launch(c10::DeviceType::CUDA, launch);
  return true;
}();

}  // namespace
}  // namespace lockstep::comm::cuda
