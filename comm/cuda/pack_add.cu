// SPDX-License-Identifier: Apache-2.0
#include "comm/cuda/pack_add.h"

namespace lockstep::comm::cuda {
namespace {

using internal::kPackAddThreads;
using internal::PackAddTable;

template <class T>
__global__ void __launch_bounds__(kPackAddThreads)
    pack_add_kernel(const __grid_constant__ PackAddTable table) {
  internal::pack_add_thread<T>(table, blockIdx.x, static_cast<int>(threadIdx.x));
}

}  // namespace

const char* launch_pack_add(const PackAddTable& table, internal::Summand kind, void* stream) {
  internal::with_summand_type(kind, [&](auto element) {
    using T = decltype(element);
    const auto blocks = static_cast<unsigned>(internal::pack_add_blocks(table, sizeof(T)));
    pack_add_kernel<T><<<blocks, kPackAddThreads, 0, static_cast<cudaStream_t>(stream)>>>(table);
  });
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace lockstep::comm::cuda
