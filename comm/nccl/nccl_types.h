// SPDX-License-Identifier: Apache-2.0
// nccl_types: NCCL's C types by value, so that code which calls NCCL compiles without a header of
// NCCL or CUDA. The numbers are those of nccl.h 2.28.9; nccl_types_test compares them with it.
#pragma once

#include <cstddef>
#include <limits>

namespace lockstep::comm::nccl {

enum class Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

enum class DataType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
  kFloat8e4m3 = 10,
  kFloat8e5m2 = 11,
};

// A built-in reduction, or the value that red_op_create_pre_mul_sum made.
enum class RedOp : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };

enum class ScalarResidence : int { kDevice = 0, kHostImmediate = 1 };

struct UniqueId {
  char internal[128];
};

// A communicator of one rank; only NCCL looks inside.
struct OpaqueCommunicator;
using CommHandle = OpaqueCommunicator*;

// What c10::Stream::native_handle() returns: a cudaStream_t on CUDA devices.
using StreamHandle = void*;

constexpr int encode_version(int major, int minor, int patch) {
  return major * 10000 + minor * 100 + patch;
}

// The oldest NCCL that knows every member of Config, and the one the numbers here come from.
constexpr int kOldestVersion = encode_version(2, 28, 0);
constexpr int kHeaderVersion = encode_version(2, 28, 9);
constexpr int kUndefined = std::numeric_limits<int>::min();

struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = kHeaderVersion;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
  int traffic_class = kUndefined;
  const char* comm_name = nullptr;
  int collnet_enable = kUndefined;
  int cta_policy = kUndefined;
  int shrink_share = kUndefined;
  int nvls_ctas = kUndefined;
  int channels_per_net_peer = kUndefined;
  int nvlink_centric_sched = kUndefined;
};

}  // namespace lockstep::comm::nccl
