// SPDX-License-Identifier: Apache-2.0
#include "testing/fake_nccl/types.h"

#include <array>

namespace lockstep::fake_nccl::internal {
namespace {

struct Entry {
  const char* name;
  size_t size;
};

// By their numbers.
constexpr std::array<Entry, 12> kTypes = {{{"int8", 1},
                                           {"uint8", 1},
                                           {"int32", 4},
                                           {"uint32", 4},
                                           {"int64", 8},
                                           {"uint64", 8},
                                           {"float16", 2},
                                           {"float32", 4},
                                           {"float64", 8},
                                           {"bfloat16", 2},
                                           {"float8e4m3", 1},
                                           {"float8e5m2", 1}}};
constexpr std::array<const char*, 5> kOps = {"sum", "prod", "max", "min", "avg"};
constexpr std::array<const char*, 8> kResults = {
    "no error",       "a CUDA call failed",      "a call of the system failed",
    "internal error", "invalid argument",        "invalid usage",
    "a peer is gone", "the call is in progress",
};

}  // namespace

bool is_known(DataType dtype) {
  return static_cast<int>(dtype) >= 0 && static_cast<size_t>(dtype) < kTypes.size();
}

bool is_float8(DataType dtype) {
  return dtype == DataType::kFloat8e4m3 || dtype == DataType::kFloat8e5m2;
}

size_t size_of(DataType dtype) { return kTypes[static_cast<size_t>(dtype)].size; }

std::string name_of(DataType dtype) {
  return is_known(dtype) ? kTypes[static_cast<size_t>(dtype)].name
                         : "dtype " + std::to_string(static_cast<int>(dtype));
}

bool is_built_in(RedOp op) {
  return static_cast<int>(op) >= 0 && static_cast<size_t>(op) < kOps.size();
}

std::string name_of(RedOp op) {
  return is_built_in(op) ? kOps[static_cast<size_t>(op)]
                         : "reduction " + std::to_string(static_cast<int>(op));
}

const char* text_of(Result result) {
  const auto number = static_cast<size_t>(result);
  return number < kResults.size() ? kResults[number] : "unknown result";
}

}  // namespace lockstep::fake_nccl::internal
